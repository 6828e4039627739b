package ipc

// This file bounds the connections of a daemon by process, by user and in total. accept.go asks it before it admits a
// connection.

import (
	"cmp"
	"sync"
)

// Limits bounds the simultaneous connections, so that one client cannot use up the daemon's descriptors. A zero field
// stands for its default. A connection beyond a limit gets an error reply and is closed before the daemon spends
// memory on it.
//
// A connection that has joined a session ([Conn.MarkJoined]) counts as a half in all limits but PerPID, because it
// has a socket and no pidfd.
type Limits struct {
	PerPID int // connections of one process; 1,024 by default, enough for as many waiting threads
	// PerUID bounds the connections of one user, except those of privileged peers; three quarters of Total by
	// default.
	PerUID int
	Total  int // all connections; 65,536 by default
	// Reserved is the part of Total for privileged peers, so that an administrator can always connect; an eighth by
	// default.
	Reserved int
}

// The descriptors that the limits count for a connection.
const (
	soloWeight   = 2 // a socket and a pidfd
	joinedWeight = 1 // a socket; the session has the pidfd
)

// connLimits counts the open connections and their descriptors.
type connLimits struct {
	Limits

	mu    sync.Mutex // guards the fields below
	total int        // descriptors
	byPID map[int]int
	byUID map[uint32]int // descriptors
}

// newConnLimits replaces zero limits by their defaults.
func newConnLimits(l Limits) *connLimits {
	l.PerPID = cmp.Or(l.PerPID, 1024)
	l.Total = cmp.Or(l.Total, 65536)
	l.PerUID = cmp.Or(l.PerUID, max(l.Total/4*3, 1))
	l.Reserved = cmp.Or(l.Reserved, l.Total/8)
	return &connLimits{Limits: l, byPID: make(map[int]int), byUID: make(map[uint32]int)}
}

// enter counts one more connection of peer, or returns the limit that refuses it.
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

// leave takes one connection of peer out of the counts; has is the number of descriptors that it counted for.
func (l *connLimits) leave(peer Peer, has int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byPID[peer.PID]--; l.byPID[peer.PID] == 0 {
		delete(l.byPID, peer.PID)
	}
	l.giveBack(peer, has)
}

// join reduces the count of one connection from soloWeight to joinedWeight.
func (l *connLimits) join(peer Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.giveBack(peer, soloWeight-joinedWeight)
}

// giveBack subtracts descriptors from the counts. The caller holds mu.
func (l *connLimits) giveBack(peer Peer, descriptors int) {
	l.total -= descriptors
	if l.byUID[peer.UID] -= descriptors; l.byUID[peer.UID] == 0 {
		delete(l.byUID, peer.UID)
	}
}
