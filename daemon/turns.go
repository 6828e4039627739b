package daemon

import (
	"sync"

	"github.com/gpuarb/gpuarb/ipc"
)

// A process may have a thousand connections, and a user many processes. Each connection has
// a goroutine, and those of one client that asks without a pause would take the daemon's lock
// and its processors from everybody else. So the requests of one process are carried out one
// after the other, and those of one user's processes too: whoever asks waits for at most one
// request of each other user, and of each other process of the same user.
//
// Nothing that may wait for something else is done in a turn: no device, and no other request.
type turns struct {
	mu    sync.Mutex
	users map[int]*userTurn
}

type userTurn struct {
	sync.Mutex
	processes map[int]*turn
}

// turn is what the connections of a process take before they carry a request out.
type turn struct {
	sync.Mutex
	user *userTurn
	uses int // connections
}

// enter returns the turn of a new connection's process.
func (ts *turns) enter(peer ipc.Peer) *turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.users == nil {
		ts.users = map[int]*userTurn{}
	}
	u := ts.users[peer.UID]
	if u == nil {
		u = &userTurn{processes: map[int]*turn{}}
		ts.users[peer.UID] = u
	}
	t := u.processes[peer.PID]
	if t == nil {
		t = &turn{user: u}
		u.processes[peer.PID] = t
	}
	t.uses++
	return t
}

// leave is for a connection that has ended.
func (ts *turns) leave(peer ipc.Peer) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	u := ts.users[peer.UID]
	if t := u.processes[peer.PID]; t.uses > 1 {
		t.uses--
		return
	}
	delete(u.processes, peer.PID)
	if len(u.processes) == 0 {
		delete(ts.users, peer.UID)
	}
}

// fromMemory tells the requests that are answered without waiting for anything but the lock.
func fromMemory(t ipc.Type) bool {
	switch t {
	case ipc.TypeJoin, ipc.TypeAttach, ipc.TypeAlloc, ipc.TypeFreed, ipc.TypeStream, ipc.TypeContext, ipc.TypeQuery,
		ipc.TypeRoom, ipc.TypeBye, ipc.TypeJobClose, ipc.TypeJobTally, ipc.TypeLimit:
		return true
	}
	return false
}

// asksKernel tells the requests that ask the kernel about their own process, at length. It may
// never answer, about a process that means harm; so they take the turn of that process alone.
func asksKernel(t ipc.Type) bool { return t == ipc.TypeHello || t == ipc.TypeJobOpen }

// held is what a connection's goroutine has of its turns.
type held uint8

const (
	heldNothing held = iota
	heldProcess
	heldUser // and the process's
)

// heldFor is what a request of a type has to have.
func heldFor(t ipc.Type) held {
	switch {
	case fromMemory(t):
		return heldUser
	case asksKernel(t):
		return heldProcess
	}
	return heldNothing
}

// takeTurn waits until no other request of the process, and of the user, is carried out.
func (cl *client) takeTurn(need held) {
	if need >= heldProcess {
		cl.turn.Lock()
	}
	if need >= heldUser {
		cl.turn.user.Lock()
	}
	cl.held = need
}

// giveTurn is the reverse of takeTurn.
func (cl *client) giveTurn() {
	if cl.held >= heldUser {
		cl.turn.user.Unlock()
	}
	if cl.held >= heldProcess {
		cl.turn.Unlock()
	}
	cl.held = heldNothing
}

// outOfTurn does what may wait for other requests.
func (cl *client) outOfTurn(wait func()) {
	had := cl.held
	cl.giveTurn()
	wait()
	cl.takeTurn(had)
}
