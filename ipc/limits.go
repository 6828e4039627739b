package ipc

import "sync"

// Limits caps the connections that are open at one moment, so that one client
// cannot use up the daemon's descriptors. A zero field is its default. The
// connection that is one too many gets an error reply and is closed, before
// anything is spent on it.
type Limits struct {
	PerPID int // connections of one process; 1,024 by default, as many as threads may wait at once
	PerUID int // connections of one user; 16,384 by default
	Total  int // 65,536 by default
}

// connLimits counts the open connections.
type connLimits struct {
	Limits

	mu    sync.Mutex
	total int
	byPID map[int]int
	byUID map[int]int
}

func newConnLimits(l Limits) *connLimits {
	for v, def := range map[*int]int{&l.PerPID: 1024, &l.PerUID: 16384, &l.Total: 65536} {
		if *v == 0 {
			*v = def
		}
	}
	return &connLimits{Limits: l, byPID: make(map[int]int), byUID: make(map[int]int)}
}

// enter counts one more connection of peer, or says which limit forbids it.
func (l *connLimits) enter(peer Peer) *ProtocolError {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byPID[peer.PID] >= l.PerPID:
		return refuse(StatusTooMany, "process %d has %d connections, the most that one may have", peer.PID, l.PerPID)
	case l.byUID[peer.UID] >= l.PerUID:
		return refuse(StatusTooMany, "user %d has %d connections, the most that one may have", peer.UID, l.PerUID)
	case l.total >= l.Total:
		return refuse(StatusTooMany, "there are %d connections, the most that there may be", l.Total)
	}
	l.byPID[peer.PID]++
	l.byUID[peer.UID]++
	l.total++
	return nil
}

// leave takes back one enter of the same peer.
func (l *connLimits) leave(peer Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	for _, e := range []struct {
		counts map[int]int
		key    int
	}{{l.byPID, peer.PID}, {l.byUID, peer.UID}} {
		if e.counts[e.key]--; e.counts[e.key] == 0 {
			delete(e.counts, e.key)
		}
	}
}

func (l *connLimits) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}
