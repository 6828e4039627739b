package daemon

// This file has the daemon and what its lock guards: the tables of devices, sessions, jobs, connections and waiting requests. They name each
// other, and so stand together. The other files change them, in the order that doc.go gives.

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/daemon/history"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/daemon/metrics"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/web/worker"
)

// Daemon is one running daemon. Start makes it, Stop ends it.
type Daemon struct {
	parts
	log           *slog.Logger
	handler       slog.Handler           // writes to the log at once, without the queue of logs
	restart       func(*ipc.ListenerFDs) // Options.Restart
	handed        *ipc.ListenerFDs       // Options.Handed
	restartOnce   sync.Once
	request       atomic.Uint32              // ipc.Type of the last client's request that was applied
	failures      *statefile.Failures        // the lock guards it, but for Add; nil before it was opened
	files         int                        // that it may have open
	barred        map[procfacts.Started]bool // processes whose requests broke the daemon; not changed once clients are served
	paths         paths
	inv           machine
	known         atomic.Pointer[table] // the devices, replaced as a whole
	scans         scans
	access        accessTimes
	listener      *ipc.Listener
	fs            *gpufs.Server
	reaper        *watcher
	page          *worker.Keeper
	ctx           context.Context // ends with Stop
	cancel        context.CancelFunc
	wg            sync.WaitGroup // every goroutine of ours that Stop waits for
	started       chan struct{}  // closed when the start is over
	execLost      chan struct{}  // events of exec were lost
	failed        chan error
	stopOnce      func() error // stop, once
	logs          *history.Queue
	history       *history.History // has locks of its own
	cache         snapshotCache
	exporter      *metrics.Exporter
	config        atomic.Pointer[config.Config] // the one in force
	configChanged chan struct{}                 // to another one
	ready         atomic.Bool                   // it was up
	changes       fair.Changes
	load          func() (c *config.Config, path string, err error) // reads the configuration
	keepGood      func(path string, c *config.Config) error         // keeps it on the disk, for a start at which the files have mistakes
	keeping       sync.Mutex                                        // held while keepGood is called
	writing       sync.Mutex                                        // held while the devices are written down
	malformed     atomic.Uint64                                     // messages that were none

	// mutex owns the arbiter and all that follows; it is taken and given back by lock and unlock
	// alone. Nothing that can block is done under it.
	mutex       sync.Mutex
	arb         *arbiter.Arbiter
	words       *shim.Words
	file        *statefile.File
	configured  figures.ConfigState // the configuration in force
	sessions    map[ipc.Token]*session
	jobs        map[ipc.Token]*job
	jobByID     map[arbiter.JobID]*job
	jobByOrigin map[jobOrigin]*job // the last of each
	conns       map[*ipc.Conn]*client
	ofProcess   map[int][]*session
	turns       fair.Turns             // has a lock of its own
	threadRows  map[int]map[uint32]int // rows of the state file, by lease record and thread
	kept        keptLimits

	sessionsOf, jobsOf, leasesOf *counts
	keepers                      map[int]named // who keeps a dead client's memory, by its pid
	queue                        waiters
	orphans                      orphans
	published                    map[*shim.Lease]publication // whose pages show what is free
	endedJobs                    endedJobs
	socketLost                   bool // it was said that the socket file is gone; poll's own
}

// table is the devices that are known, with the reader of each. It never changes: a new table takes its place.
type table struct {
	devices []inventory.Device
	readers map[int]*reader // by device
}

// jobOrigin is a runner's request for a job, by the number that it gave it.
type jobOrigin struct {
	runner  procfacts.Started
	request uint64
}

// job is the job of one `gpuarb run`. It lasts as long as the runner or any of
// its processes lives, also if that process never connects: see orphans.go. The runner is
// watched by its pidfd, so that the job outlives a restart of the daemon without a message.
type job struct {
	id    arbiter.JobID
	token ipc.Token
	jobOrigin
	uid uint32
	// namespace is ipc.Peer.Namespace of the runner.
	namespace uint64
	repliedTo *client // whom the last reply with it went to
	index     int     // of its record
	anchor    watched // what it lives by: the runner, then another process of it
	members   map[*session]struct{}
	live      int  // members that have not ended
	open      bool // it holds what it was to hold, and its runner was told, or will be
	closed    bool // nothing of it lives but its members
	budget    accounting.Bytes
}

// client is the daemon's side of one connection.
type client struct {
	d       *Daemon
	conn    *ipc.Conn
	s       *session // of a shim, after Hello, Join or Resume
	tool    bool     // said Hello as a tool
	request ipc.Type // the last one that was read; the connection's own goroutine's
	// taken is s.resumes when this connection became the session's.
	resumes int
	// makers are the threads that messages about the lease makersOf have listed so far, until the last of these messages comes.
	makers   []arbiter.Maker
	makersOf *shim.Lease
	// waits is the last request of this connection that was parked, unread says that its client may not have read what
	// the last reply gave; both are dropped by the connection's own goroutine.
	waits  *parked
	unread atomic.Bool
	out    outgoing
	last   receipt // what that gave; the daemon's lock guards it
	turn   fair.Turn
	feed   *eventStream // of the last request for events, or nil
}

// receipt describes an undelivered grant: what the last reply on a connection gave its client. A client that sends its next request has read the
// reply. If the connection ends before that, the daemon takes the grant back, and the client does not count it. The zero receipt: nothing was given.
type receipt struct {
	job   *job            // job that was opened; nil: none
	s     *session        // session that was opened; nil: none
	lease *shim.Lease     // lease whose request was granted; nil: none
	got   arbiter.Receipt // grant for lease
}

// parked is a waiting request of a client that is connected. The goroutine of the connection still reads from it meanwhile; notices and
// the reply go through the connection's queue (outgoing.go). The daemon's lock guards all fields but over.
type parked struct {
	cl     *client
	s      *session // the session that asks; nil: it asks for a session or a job
	head   ipc.Header
	ticket arbiter.TicketID
	place  int    // index of its record in the state file's tickets; -1: none
	caller string // the name of the program that its notices begin with; "": the client adds that itself
	// decide carries out the arbiter's decision. It returns a receipt for what that gives, and a function that sends the reply. The
	// daemon's lock is held for decide, and not for that function.
	decide func(arbiter.Result) (receipt, func() error)

	over atomic.Bool // the reply is in the connection's queue
}

// requestKey identifies a request that comes again: by its process, its type and its number.
type requestKey struct {
	procfacts.Started
	typ     ipc.Type
	request uint64
}

// absent is a waiting request whose client has yet to ask again. The zero value is none.
type absent struct {
	ticket arbiter.TicketID
	free   func() // frees its rows in the state file
}

// waiters is the set of requests that wait.
type waiters struct {
	parked  map[arbiter.TicketID]*parked
	absent  map[requestKey]absent
	touched []*client     // clients whose queues got messages since the lock was taken
	due     time.Time     // when to call the arbiter's Tick; zero: not at all
	sooner  chan struct{} // gets a signal when due is set to an earlier time
}

func newWaiters() waiters {
	return waiters{parked: map[arbiter.TicketID]*parked{}, absent: map[requestKey]absent{}, sooner: make(chan struct{}, 1)}
}

// left is the set of jobs for which the daemon must find out whether a process of them lives. The daemon's lock guards it.
type orphans struct {
	jobs map[*job]struct{}
	done chan struct{} // closed when that is known of all jobs that were entered so far
	wake chan struct{} // a job was entered
}

func newOrphans() orphans {
	done := make(chan struct{})
	close(done)
	return orphans{jobs: map[*job]struct{}{}, done: done, wake: make(chan struct{}, 1)}
}

// reader reads one device in a goroutine of its own, so that nothing else waits for a device that hangs. It reads once a second, and
// at once if a request waits for a reading. One reading serves all requests that wait.
type reader struct {
	d     *Daemon
	index int
	wake  chan struct{}
	first chan struct{} // closed when the first reading is in the books

	names map[int]named // of processes without a lease; only the goroutine of run uses this field and those up to lost
	gap   time.Duration // the pause before the next look at what drains
	pace  *rate.Limiter // one reading in each readOften in the long run, and readBurst at once
	lost  bool          // as the last reading said

	mu     sync.Mutex
	since  time.Time     // when it last answered, or was first asked
	asking bool          // a reading is under way
	failed bool          // the last one got no answer
	booked chan struct{} // closed when the next reading for the books is over; nil: no goroutine waits for that

	draining map[*session]struct{} // dead sessions with a lease there; the daemon's lock guards it
}

// named is the name and the job of a process without a lease, and when they were looked up.
type named struct {
	start   uint64
	uid     uint32
	user    string
	command string
	job     arbiter.JobID
	bypass  figures.Bypass
	at      time.Time
}

// showing is a lease whose client is shown its memory.
type publication struct {
	s      *session
	rounds int // that are left
}

// keptLimits is the index of the records of limits in the state file.
type keptLimits struct {
	of    map[rules.Owner][]int // indexes of each owner's records
	count *counts               // number of records, by the user who made the change
	paths map[uint64]int        // indexes of the records of cgroups' paths, by the numbers of the paths
}

func newKeptLimits() keptLimits {
	return keptLimits{of: map[rules.Owner][]int{}, count: newCounts(limitBounds), paths: map[uint64]int{}}
}

// scans lets goroutines ask for a look at the devices, and wait for its end.
type scans struct {
	wake chan struct{}
	mu   sync.Mutex
	next chan struct{} // closed when the next look to begin is over
	last time.Time     // when a look ended
}

func newScans() scans { return scans{wake: make(chan struct{}, 1), next: make(chan struct{})} }

// stopping says that Stop was called: what a client holds, waits for or leaves is the next daemon's business.
func (d *Daemon) stopping() bool { return d.ctx.Err() != nil }

// rest waits for a time, or until the daemon is stopped.
func (d *Daemon) sleep(over <-chan time.Time) {
	select {
	case <-d.ctx.Done():
	case <-over:
	}
}
