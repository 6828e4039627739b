package fair

// This file orders the requests of processes and users. daemon/serve.go takes a turn for each request, and
// daemon/orphans.go releases it during a wait. changes.go limits changes of limits in addition.

import "sync"

// Turns orders the requests of processes and users. A process may have a thousand connections, and a user many
// processes. Each connection has a goroutine. Without turns, the goroutines of one busy client would take the
// daemon's lock and processors from all other clients.
//
// The requests of one process are therefore served one after another, and so are those of one user's processes. A
// request waits for at most one request of each other user, and of each other process of its own user.
//
// A turn must be released during a wait for a device or for another request.
type Turns struct {
	mu    sync.Mutex
	users map[uint32]*user
}

type user struct {
	sync.Mutex
	processes map[int]*process
}

type process struct {
	sync.Mutex
	user        *user
	connections int
}

// Need is the turn that a request requires.
type Need uint8

// Turns that a request can require.
const (
	Nothing   Need = iota
	OfProcess      // no other request of the process is served meanwhile
	OfUser         // no other request of the user's processes is served meanwhile
)

// Turn has the turns that a connection holds. Only the connection's goroutine may use it.
type Turn struct {
	of  *process
	has Need
}

// Enter adds a new connection of a user's process.
func (ts *Turns) Enter(uid uint32, pid int) Turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.users == nil {
		ts.users = map[uint32]*user{}
	}
	u := ts.users[uid]
	if u == nil {
		u = &user{processes: map[int]*process{}}
		ts.users[uid] = u
	}
	p := u.processes[pid]
	if p == nil {
		p = &process{user: u}
		u.processes[pid] = p
	}
	p.connections++
	return Turn{of: p}
}

// Leave removes a connection that has ended.
func (ts *Turns) Leave(uid uint32, pid int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	u := ts.users[uid]
	if p := u.processes[pid]; p.connections > 1 {
		p.connections--
		return
	}
	delete(u.processes, pid)
	if len(u.processes) == 0 {
		delete(ts.users, uid)
	}
}

// Acquire waits until no other request of the process, or of the user, is served.
func (t *Turn) Acquire(need Need) {
	if need >= OfProcess {
		t.of.Lock()
	}
	if need >= OfUser {
		t.of.user.Lock()
	}
	t.has = need
}

// Release ends the turns that Acquire began.
func (t *Turn) Release() {
	if t.has >= OfUser {
		t.of.user.Unlock()
	}
	if t.has >= OfProcess {
		t.of.Unlock()
	}
	t.has = Nothing
}

// WhileReleased releases the turns, calls a function that may wait for other requests, and acquires the turns again.
func (t *Turn) WhileReleased(wait func()) {
	had := t.has
	t.Release()
	wait()
	t.Acquire(had)
}
