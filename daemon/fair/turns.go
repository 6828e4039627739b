package fair

import "sync"

// Turns orders who is served. A process may have a thousand connections, and a user many processes. Each connection has
// a goroutine, and those of one client that asks without a pause would take the daemon's lock
// and its processors from everybody else. So the requests of one process are carried out one
// after the other, and those of one user's processes too: whoever asks waits for at most one
// request of each other user, and of each other process of the same user.
//
// Nothing that may wait for something else is done in a turn: no device, and no other request.
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

// Need is what somebody has to have for what he is about to do.
type Need uint8

// The turns that there are to be had.
const (
	Nothing   Need = iota
	OfProcess      // no other request of the process is carried out
	OfUser         // nor of any process of the user
)

// Turn is what a connection has of its process's and its user's turns. It is its goroutine's.
type Turn struct {
	of  *process
	has Need
}

// Enter is for a new connection of a process of a user.
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

// Leave is for a connection that has ended.
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

// Take waits until no other request of the process, and of the user, is carried out.
func (t *Turn) Acquire(need Need) {
	if need >= OfProcess {
		t.of.Lock()
	}
	if need >= OfUser {
		t.of.user.Lock()
	}
	t.has = need
}

// Give is the reverse of Take.
func (t *Turn) Release() {
	if t.has >= OfUser {
		t.of.user.Unlock()
	}
	if t.has >= OfProcess {
		t.of.Unlock()
	}
	t.has = Nothing
}

// Out does what may wait for other requests.
func (t *Turn) WhileReleased(wait func()) {
	had := t.has
	t.Release()
	wait()
	t.Acquire(had)
}
