package ipc

import (
	"cmp"
	"os"
	"sync"
)

// Limits caps the connections that are open at one moment, so that one client
// cannot use up the daemon's descriptors. A zero field is its default. The
// connection that is one too many gets an error reply and is closed, before
// anything is spent on it.
type Limits struct {
	PerPID int // connections of one process; 1,024 by default, as many as threads may wait at once
	// PerUID is for one user other than root and the daemon's own; three quarters of Total by default.
	PerUID int
	Total  int // 65,536 by default
	// Reserved of Total are for root and the daemon's own user, so that they can look and clear
	// up; an eighth by default.
	Reserved int
}

// connLimits counts the open connections.
type connLimits struct {
	Limits

	mu    sync.Mutex
	total int
	byPID map[int]int
	byUID map[uint32]int
}

func newConnLimits(l Limits) *connLimits {
	l.PerPID = cmp.Or(l.PerPID, 1024)
	l.Total = cmp.Or(l.Total, 65536)
	l.PerUID = cmp.Or(l.PerUID, max(l.Total/4*3, 1))
	l.Reserved = cmp.Or(l.Reserved, l.Total/8)
	return &connLimits{Limits: l, byPID: make(map[int]int), byUID: make(map[uint32]int)}
}

// enter counts one more connection of peer, or says which limit forbids it.
func (l *connLimits) enter(peer Peer) *ProtocolError {
	l.mu.Lock()
	defer l.mu.Unlock()
	other := peer.UID != 0 && int(peer.UID) != os.Geteuid()
	switch {
	case l.byPID[peer.PID] >= l.PerPID:
		return refuse(StatusTooMany, "process %d has %d connections, the most that one may have: close some", peer.PID, l.PerPID)
	case other && l.byUID[peer.UID] >= l.PerUID:
		return refuse(StatusTooMany, "user %d has %d connections, the most that one may have: end some of the programs", peer.UID, l.PerUID)
	case other && l.total >= l.Total-l.Reserved:
		return refuse(StatusTooMany, "there are %d connections, the most that there may be but for %d of root's: try again later", l.total, l.Reserved)
	case l.total >= l.Total:
		return refuse(StatusTooMany, "there are %d connections, the most that there may be: try again later", l.Total)
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
	if l.byPID[peer.PID]--; l.byPID[peer.PID] == 0 {
		delete(l.byPID, peer.PID)
	}
	if l.byUID[peer.UID]--; l.byUID[peer.UID] == 0 {
		delete(l.byUID, peer.UID)
	}
}
