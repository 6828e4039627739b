package ipc

import (
	"cmp"
	"sync"
)

// Limits caps the connections that are open at one moment, so that one client
// cannot use up the daemon's descriptors. A zero field is its default. The
// connection that is one too many gets an error reply and is closed, before
// anything is spent on it. One that belongs to another's session ([Conn.MarkJoined]) counts a half in
// all of them but PerPID: it has a socket, and no pidfd.
type Limits struct {
	PerPID int // connections of one process; 1,024 by default, as many as threads may wait at once
	// PerUID bounds one user's connections, but not those of privileged peers; three quarters of Total by default.
	PerUID int
	Total  int // 65,536 by default
	// Reserved of Total are for privileged peers, so that they can look and clear
	// up; an eighth by default.
	Reserved int
}

// The descriptors that a connection may come to have, and those of one that has joined a session.
const (
	soloWeight   = 2 // a socket, a pidfd
	joinedWeight = 1
)

// connLimits counts the open connections, and their descriptors.
type connLimits struct {
	Limits

	mu    sync.Mutex
	total int // descriptors
	byPID map[int]int
	byUID map[uint32]int // descriptors
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
	other := !peer.Privileged
	full := func(used, most int) bool { return used+soloWeight > most*soloWeight }
	switch {
	case l.byPID[peer.PID] >= l.PerPID:
		return refuse(StatusTooMany, "process %d has %d connections, the most that one may have: close some", peer.PID, l.PerPID)
	case other && full(l.byUID[peer.UID], l.PerUID):
		return refuse(StatusTooMany, "user %d has as many connections as one user may have (%d): end some of the programs", peer.UID, l.PerUID)
	case other && full(l.total, l.Total-l.Reserved):
		return refuse(StatusTooMany, "there are as many connections as there may be (%d), but for %d of root's: try again later", l.Total-l.Reserved, l.Reserved)
	case full(l.total, l.Total):
		return refuse(StatusTooMany, "there are as many connections as there may be (%d): try again later", l.Total)
	}
	l.byPID[peer.PID]++
	l.byUID[peer.UID] += soloWeight
	l.total += soloWeight
	return nil
}

// leave takes back one enter of the same peer, whose connection has so many descriptors.
func (l *connLimits) leave(peer Peer, has int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPID[peer.PID]--; l.byPID[peer.PID] == 0 {
		delete(l.byPID, peer.PID)
	}
	l.giveBack(peer, has)
}

// join has a connection count as one that has joined a session.
func (l *connLimits) join(peer Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack(peer, soloWeight-joinedWeight)
}

func (l *connLimits) giveBack(peer Peer, descriptors int) {
	l.total -= descriptors
	if l.byUID[peer.UID] -= descriptors; l.byUID[peer.UID] == 0 {
		delete(l.byUID, peer.UID)
	}
}
