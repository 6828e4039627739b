package daemon

// This file has the type Daemon and the tables that its lock guards: devices, sessions, jobs, connections and waiting
// requests. The types stand together because they refer to each other. The other files change them, in the order that
// doc.go gives.

import (
	"context"
	"log/slog"
	"os"
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
	"github.com/gpuarb/gpuarb/daemon/secondwall"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/internal/worker"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// Daemon is one running daemon. Start makes it, Stop ends it.
type Daemon struct {
	parts
	log           *slog.Logger
	handler       slog.Handler           // handler of the log, without the queue of logs
	restart       func(*ipc.ListenerFDs) // Options.Restart
	mounted       *os.File               // mount that systemd's unit made, until the filesystem is served; nil: none
	notMounted    error                  // reason why systemd's unit could not mount; nil: it could, or there is no such unit
	handed        *ipc.ListenerFDs       // descriptors that the last daemon in this process passed on; nil: none
	restartOnce   sync.Once
	request       atomic.Uint32              // ipc.Type of the last client's request that was applied
	failures      *statefile.Failures        // the lock guards it, except for Add; nil: not opened yet
	files         int                        // files that this process may have open
	barred        map[procfacts.Started]bool // processes whose requests caused panics; constant once clients are served
	paths         paths
	inv           machine
	known         atomic.Pointer[table] // the devices; the table is replaced as a whole
	scans         scans
	access        accessTimes
	listener      *ipc.Listener
	fs            *gpufs.Server
	reaper        *watcher
	page          *worker.Keeper
	archive       *worker.Keeper  // process that keeps the history
	feed          feed            // has its own lock
	means         minuteMeans     // only the goroutine of keepArchive uses it
	ctx           context.Context // ends with Stop
	cancel        context.CancelFunc
	wg            sync.WaitGroup // all goroutines that Stop waits for
	started       chan struct{}  // closed at the end of the start
	execLost      chan struct{}  // receives when exec events were lost
	failed        chan error
	stopOnce      func() error // calls stop, once
	logs          *history.Queue
	history       *history.History // has its own locks
	cache         snapshotCache
	exporter      *metrics.Exporter
	config        atomic.Pointer[config.Config] // configuration in force
	configChanged chan struct{}                 // receives when the configuration changed
	ready         atomic.Bool                   // the start succeeded
	changes       fair.Changes
	load          func() (c *config.Config, path string, err error) // reads the configuration
	keepGood      func(path string, c *config.Config) error         // keeps the configuration on the disk, for a start at which the files have mistakes
	keeping       sync.Mutex                                        // held while keepGood is called
	writing       sync.Mutex                                        // held while the list of devices is written to the disk
	malformed     atomic.Uint64                                     // number of malformed messages

	// mutex guards the arbiter and all fields that follow. Only lock and unlock acquire and release it. No operation
	// that can block runs while it is held.
	mutex         sync.Mutex
	arb           *arbiter.Arbiter
	words         *shim.Words
	file          *statefile.File
	configured    figures.ConfigState // text and path of the configuration in force
	sessions      map[ipc.Token]*session
	jobs          map[ipc.Token]*job
	jobByID       map[arbiter.JobID]*job
	jobByOrigin   map[jobOrigin]*job // last job of each request
	bindings      map[string]*job    // jobs of cgroups, by path
	conns         map[*ipc.Conn]*client
	sessionsByPID map[int][]*session
	turns         fair.Turns             // has its own lock
	threadRows    map[int]map[uint32]int // rows of the state file, by lease record and thread
	kept          keptLimits
	driver        driverLimits
	suspensions   suspensions

	sessionCounts, jobCounts, leaseCounts *counts
	keepers                               map[int]named // processes that keep a dead client's memory, by the client's PID
	queue                                 waiters
	orphans                               orphans
	published                             map[*shim.Lease]publication // leases whose pages show the free memory
	endedJobs                             endedJobs
	socketLost                            bool // the loss of the socket was logged; only poll uses this field
}

// table is the set of known devices, with the reader of each. It never changes: a new table replaces it.
type table struct {
	devices []inventory.Device
	readers map[int]*reader // readers by device index
}

// jobOrigin identifies a runner's request for a job, by the runner's number for it.
type jobOrigin struct {
	runner  procfacts.Started
	request uint64
}

// job is the job of one `gpuarb run`. It lasts as long as its runner or any of its processes lives, also if that
// process never connects (orphans.go). The runner is watched by its pidfd, so that the job survives a restart of the
// daemon without a message.
type job struct {
	id    arbiter.JobID
	token ipc.Token
	jobOrigin
	uid uint32
	// namespace is ipc.Peer.Namespace of the runner.
	namespace uint64
	repliedTo *client // client that got the last reply with this job; nil: none
	index     int     // index of its record in the state file
	anchor    watched // watch on the runner, or on the anchor process after the runner's end
	members   map[*session]struct{}
	live      int  // number of members that have not ended
	open      bool // the job has its reservation, and its runner has the reply or will get it
	closed    bool // no process of the job lives except its members
	budget    accounting.Bytes
	bound     *binding // cgroup of the job; nil: a runner opened it
	around    *job     // job of a cgroup inside which the job is; nil: none
}

// binding is the cgroup of a job without a runner. The job lasts until it is closed, or as until says.
type binding struct {
	path      string
	folder    uint64 // inode number of the cgroup's folder; a folder that was made again has another one
	dir       string // path of the folder, below the mount point of a hierarchy
	until     uint32 // as in ipc.BindRequest
	idle      time.Duration
	used      time.Time // last time at which a process was seen in the cgroup, or the time of the opening
	opened    time.Time // time of the opening; zero: the job waits for its reservation
	came      bool      // a process was seen in the cgroup
	missed    bool      // the event that no process has come for missedAfter was recorded
	lossOpen  bool      // without a daemon, programs of the job continue without limits
	contexts  bool      // contexts are charged to the job's budget
	inside    bool      // its opener was in the job of a cgroup, while it is being opened
	allows    uint32    // flags of ipc.BindAllows: what programs inside may do
	container string    // ID of the container; "": none
	row       int       // index of its record in the state file; -1: it has none
}

// client is the daemon's side of one connection.
type client struct {
	d       *Daemon
	conn    *ipc.Conn
	s       *session // session of a shim after Hello, Join or Resume; nil: none
	tool    bool     // the client sent Hello as a tool
	request ipc.Type // type of the last request; only the connection's goroutine uses it
	// resumes is session.resumes at the time when this connection joined the session.
	resumes int
	// makers lists the threads in the messages about the lease makersOf so far, until the last of these messages
	// arrives.
	makers   []arbiter.Maker
	makersOf *shim.Lease
	// waits is the last request of this connection that was parked. unread says that the client may not have read the
	// last reply. Only the connection's own goroutine clears them.
	waits  *parked
	unread atomic.Bool
	out    outgoing
	last   receipt // receipt of the last reply; the daemon's lock guards it
	turn   fair.Turn
	feed   *eventStream // stream of the last request for events; nil: none
}

// receipt describes an undelivered grant: what the last reply on a connection gave its client. A client that sends
// its next request has read the reply. If the connection ends before that, the daemon takes the grant back, and the
// client does not count it. The zero receipt: nothing was given.
type receipt struct {
	job   *job            // job that was opened; nil: none
	s     *session        // session that was opened; nil: none
	lease *shim.Lease     // lease whose request was granted; nil: none
	got   arbiter.Receipt // grant for lease
}

// parked is a waiting request of a connected client. The connection's goroutine still reads meanwhile; notices and
// the reply go through the outgoing queue (outgoing.go). The daemon's lock guards all fields except over.
type parked struct {
	cl     *client
	s      *session // session that asks; nil: the request is for a session or a job
	head   ipc.Header
	ticket arbiter.TicketID
	place  int    // index of its record in the state file's tickets; -1: none
	caller string // program name with which its notices begin; "": the client adds it itself
	// decide applies the arbiter's decision, with the daemon's lock held. It returns a receipt of the grant, and a
	// function that sends the reply and is called without the lock.
	decide func(arbiter.Result) (receipt, func() error)

	over atomic.Bool // the reply is in the outgoing queue
}

// requestKey identifies a repeated request by its process, type and number.
type requestKey struct {
	procfacts.Started
	typ     ipc.Type
	request uint64
}

// absent is a waiting request whose client has not yet asked again. The zero value: none.
type absent struct {
	ticket arbiter.TicketID
	free   func() // frees the rows of the request in the state file
}

// waiters is the set of waiting requests.
type waiters struct {
	parked  map[arbiter.TicketID]*parked
	absent  map[requestKey]absent
	touched []*client     // clients whose outgoing queues got messages since the lock was acquired
	due     time.Time     // time of the next call of the arbiter's Tick; zero: none
	sooner  chan struct{} // receives when due is set to an earlier time
}

func newWaiters() waiters {
	return waiters{parked: map[arbiter.TicketID]*parked{}, absent: map[requestKey]absent{}, sooner: make(chan struct{}, 1)}
}

// orphans is the set of jobs for which the daemon must find out whether one of their processes lives. The daemon's
// lock guards it.
type orphans struct {
	jobs map[*job]struct{}
	done chan struct{} // closed when that is known of all queued jobs
	wake chan struct{} // receives when a job is queued
}

func newOrphans() orphans {
	done := make(chan struct{})
	close(done)
	return orphans{jobs: map[*job]struct{}{}, done: done, wake: make(chan struct{}, 1)}
}

// reader reads one device in its own goroutine, so that a device that hangs delays nothing else. It reads once a
// second, and at once if a request waits for a reading. One reading serves all waiting requests.
type reader struct {
	d     *Daemon
	index int
	wake  chan struct{}
	first chan struct{} // closed when the arbiter has the first reading

	names map[int]named // processes without a lease, by PID; only the goroutine of run uses this field and those up to lost
	gap   time.Duration // pause before the next reading while leases drain
	pace  *rate.Limiter // on average one reading per readOften, and readBurst at once
	lost  bool          // the last reading said that the device is lost

	mu       sync.Mutex
	since    time.Time     // time of the last answer, or of the first question
	asking   bool          // a reading is in progress
	failed   bool          // the last reading failed
	compared chan struct{} // closed after the next compared reading; nil: no goroutine waits for it

	draining map[*session]struct{} // dead sessions with a lease on the device; the daemon's lock guards it
}

// named is the name and the job of a process without a lease, and the time when they were read.
type named struct {
	keeps   bool // it keeps the memory of a dead process
	pid     int  // of a process that keeps memory; else 0
	start   uint64
	uid     uint32
	user    string
	command string
	job     arbiter.JobID
	bound   arbiter.JobID // job of the cgroup in which the process runs; 0: none
	bypass  figures.Bypass
	at      time.Time
}

// publication is a lease whose page shows the free memory.
type publication struct {
	s      *session
	rounds int // updates that are left
}

// suspensions are the records of suspended jobs, and what the arbiter wants done for such jobs.
type suspensions struct {
	rows    map[arbiter.JobID]int // index of each job's record
	serial  uint64                // serial number of the last record
	errands []arbiter.Errand      // errands that have not begun
	wake    chan struct{}         // receives when there is one
}

func newSuspensions() suspensions {
	return suspensions{rows: map[arbiter.JobID]int{}, wake: make(chan struct{}, 1)}
}

// driverLimits are the limits of cgroups in the kernel or a vendor's driver.
type driverLimits struct {
	wake     chan struct{} // receives when a limit may have to change
	contexts uint64        // arbiter.ContextChanges at the last signal
	walls    *secondwall.Walls
	broken   error                         // why no limit can be written, because it could not be recorded; nil: it can be
	busy     map[int]time.Time             // begin of the call of Settle that runs, by device
	on       map[int]driverDevice          // last result, by device
	of       map[wallKey]secondwall.Result // last result of each cgroup and device
}

// driverDevice tells whether the kernel or the driver can hold limits on a device. If neither can, fail is the reason.
type driverDevice struct {
	by   secondwall.By
	fail string
}

// wallKey identifies the limit of a cgroup on a device.
type wallKey struct {
	cgroup string
	device int
}

func newDriverLimits() driverLimits {
	return driverLimits{wake: make(chan struct{}, 1), busy: map[int]time.Time{}, on: map[int]driverDevice{}, of: map[wallKey]secondwall.Result{}}
}

// keptLimits is the index of the records of limits in the state file.
type keptLimits struct {
	of    map[rules.Owner][]int // indices of each owner's records
	count *counts               // number of records, by the user who made the change
	paths map[uint64]int        // indices of the records of cgroups' paths, by the numbers of the paths
}

func newKeptLimits() keptLimits {
	return keptLimits{of: map[rules.Owner][]int{}, count: newCounts(limitBounds), paths: map[uint64]int{}}
}

// scans lets goroutines request a scan for devices, and wait for its end.
type scans struct {
	wake chan struct{}
	mu   sync.Mutex
	next chan struct{} // closed at the end of the next scan to begin
	last time.Time     // end of the last scan; zero: none
}

func newScans() scans { return scans{wake: make(chan struct{}, 1), next: make(chan struct{})} }

// stopping reports whether Stop was called. From then on, this daemon leaves sessions, jobs and waiting requests as
// they are recorded, because the next daemon recovers them.
func (d *Daemon) stopping() bool { return d.ctx.Err() != nil }

// sleep waits for over, or until the daemon is stopped.
func (d *Daemon) sleep(over <-chan time.Time) {
	select {
	case <-d.ctx.Done():
	case <-over:
	}
}
