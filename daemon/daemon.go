package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/config"
	"github.com/gpuarb/gpuarb/daemon/fair"
	"github.com/gpuarb/gpuarb/daemon/history"
	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/metrics"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/shim"
	"github.com/gpuarb/gpuarb/statefile"
	"github.com/gpuarb/gpuarb/version"
	"github.com/gpuarb/gpuarb/web/worker"
)

// Daemon is one running daemon. Start makes it, Stop ends it.
type Daemon struct {
	parts
	log      *slog.Logger
	handler  slog.Handler      // writes to the log at once, without the queue of logs
	restart  func(*ipc.Handed) // Options.Restart
	handed   *ipc.Handed       // Options.Handed
	breaks   sync.Once
	request  atomic.Uint32              // ipc.Type of the last client's request that was applied
	failures *statefile.Failures        // the lock guards it, but for Add; nil before it was opened
	files    int                        // that it may have open
	barred   map[procfacts.Started]bool // processes whose requests broke the daemon; not changed once clients are served
	paths    paths
	inv      machine
	known    atomic.Pointer[table] // the devices, replaced as a whole
	scans    scans
	looks    looks
	listener *ipc.Listener
	fs       *gpufs.Server
	reaper   *watcher
	page     *worker.Keeper
	ctx      context.Context // ends with Stop
	cancel   context.CancelFunc
	wg       sync.WaitGroup // every goroutine of ours that Stop waits for
	started  chan struct{}  // closed when the start is over
	overrun  chan struct{}  // events of exec were lost
	failed   chan error
	end      func() error // stop, once
	logs     *history.Queue
	history  *history.History // has locks of its own
	texts    snapshots
	exporter *metrics.Exporter
	config   atomic.Pointer[config.Config] // the one in force
	turned   chan struct{}                 // to another one
	ready    atomic.Bool                   // it was up
	changes  fair.Changes
	load     func() (c *config.Config, path string, err error) // reads the configuration
	keepGood func(path string, c *config.Config) error         // keeps it on the disk, for a start at which the files have mistakes
	keeping  sync.Mutex                                        // held while keepGood is called
	writing  sync.Mutex                                        // held while the devices are written down
	bad      atomic.Uint64                                     // messages that were none

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
	left                         left
	shown                        map[*shim.Lease]showing // whose pages show what is free
	endedJobs                    endedJobs
	unreachable                  bool // it was said that the socket file is gone; poll's own
}

// Start starts a daemon and returns when it is ready for clients. Every error
// says what was wrong and what to do. With the end of ctx the start is given up, whatever
// it waits for.
func Start(ctx context.Context, o Options) (*Daemon, error) { return startWith(ctx, o, nil) }

// startWith is Start with other parts than the real ones, where change says so.
func startWith(ctx context.Context, o Options, change func(*parts)) (*Daemon, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p, err := o.resolve()
	if err != nil {
		return nil, err
	}
	l, err := o.loadOrLastGood()
	if err != nil {
		return nil, err
	}
	cfg := l.config
	files := raiseFileLimit()
	own, cancel := context.WithCancel(context.Background())
	logs := history.NewQueue(o.Log.Handler())
	d := &Daemon{log: slog.New(logs), logs: logs, handler: o.Log.Handler(), restart: o.Restart, handed: o.Handed, files: files, barred: map[procfacts.Started]bool{},
		paths: p, ctx: own, cancel: cancel, failed: make(chan error, 4), started: make(chan struct{}), overrun: make(chan struct{}, 1), turned: make(chan struct{}, 1), exporter: metrics.New(),
		sessions: map[ipc.Token]*session{}, ofProcess: map[int][]*session{}, threadRows: map[int]map[uint32]int{}, kept: newKeptLimits(),
		sessionsOf: newCounts(sessionBounds.within(files / filesPerSession)), jobsOf: newCounts(jobBounds.within(files / filesPerJob)), leasesOf: newCounts(leaseBounds),
		jobs: map[ipc.Token]*job{}, jobByID: map[arbiter.JobID]*job{}, jobByOrigin: map[jobOrigin]*job{}, conns: map[*ipc.Conn]*client{}, keepers: map[int]named{}, queue: newWaiters(), left: newLeft(), shown: map[*shim.Lease]showing{}}
	d.known.Store(&table{})
	d.scans = newScans()
	d.load, d.keepGood, d.parts, d.end = o.load, o.keepLastGood, d.realParts(), sync.OnceValue(d.stop)
	if change != nil {
		change(&d.parts)
	}
	d.history = history.New(d.now, d.log)
	d.changes.Now, d.changes.After = d.now, d.after
	d.arb = arbiter.New(cfg.Policy)
	d.words = shim.NewWords(func(id arbiter.LeaseID) { d.arb.Clamped(d.now(), id) })
	d.turnTo(cfg, l.main)
	if l.mistakes != nil {
		d.configured.Mistakes = few(l.mistakes)
		d.log.Error("the configuration has mistakes: the last one without mistakes is in force, until the files are corrected and read again",
			"kept", l.since.Format(time.DateTime), "err", l.mistakes)
	}
	d.history.Show(cfg.Commands == config.CommandsOwn && os.Geteuid() == 0)
	result := background(func() error {
		defer d.caught(nil)
		defer close(d.started)
		return d.start(wantedPage(cfg))
	})
	select {
	case err = <-result:
	case <-ctx.Done():
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// start brings the parts up in order; what is up when it fails, Stop takes down. Stop may
// come at any moment.
func (d *Daemon) start(page worker.Wanted) error {
	if err := d.openListener(); err != nil {
		return err
	}
	d.page = worker.New(d.log, d.listener.Path(), d.paths.socketMode())
	d.page.Set(page)
	if err := d.openFailures(); err != nil {
		return err
	}
	fresh, err := d.openState()
	if err != nil {
		return err
	}
	if err := d.checkRecords(); err != nil {
		return err
	}
	reaper, err := inventory.NewReaper(d.onExit)
	if err != nil {
		return err
	}
	if err := d.up(func() { d.reaper = reaper }); err != nil {
		return errors.Join(err, reaper.Close())
	}
	if err := d.openInventory(); err != nil {
		return err
	}
	d.addDevices()
	d.keepDevices()
	if !fresh {
		d.recover()
	}
	d.startReaders()
	go d.scanDevices(d.ctx)
	if err := d.mount(); err != nil && !d.goesWithout(err) {
		return err
	}
	for _, f := range d.duties() {
		if err := d.spawn(f); err != nil {
			return err
		}
	}
	if err := d.spawn(func(context.Context) { d.keepConfig() }); err != nil {
		return err
	}
	d.ready.Store(true)
	d.notify("READY=1")
	go d.accept(d.ctx) // which ends when the listener closes
	d.log.Info("ready", "version", version.Version, "socket", d.paths.socket, "mount", d.paths.mount,
		"devices", len(d.devices()))
	return nil
}

func (d *Daemon) openListener() error {
	l, err := d.listen()
	if err != nil {
		return err
	}
	if err := d.up(func() { d.listener = l }); err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// openInventory finds the devices. NVML may hang at its first call; the end of the daemon
// does not wait for it.
func (d *Daemon) openInventory() error {
	found := background(func() error {
		inv := d.inventory()
		err := d.up(func() { d.inv = inv })
		if err != nil {
			inv.Close()
		}
		return err
	})
	select {
	case err := <-found:
		return err
	case <-d.ctx.Done():
		return errStopped
	}
}

// openState opens the state file. Where there can be none the daemon goes on without.
func (d *Daemon) openState() (fresh bool, err error) {
	file, fresh, err := statefile.Open(d.paths.state)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		file, err = statefile.Anonymous(err)
		fresh = true
	}
	if err != nil {
		return false, fmt.Errorf("state file: %w", err)
	}
	if err := d.up(func() { d.file = file }); err != nil {
		return false, errors.Join(err, file.Close())
	}
	if aside := d.file.Aside(); aside != "" {
		d.log.Warn("the state file cannot be read by this version, and is set aside: programs report again what they hold",
			"file", d.paths.state, "set_aside_as", aside)
	}
	if err := d.file.Volatile(); err != nil {
		d.log.Warn("the state cannot be kept: after a restart of the daemon, programs tell it themselves what they hold",
			"file", d.paths.state, "err", err)
	}
	return fresh, nil
}

// spawn runs f until it returns; Stop waits for it.
func (d *Daemon) spawn(f func(context.Context)) error {
	return d.up(func() {
		d.wg.Go(func() {
			defer d.caught(nil)
			f(d.ctx)
		})
	})
}

// mount mounts the filesystem unless the socket alone is wanted.
func (d *Daemon) mount() error {
	if d.paths.mount == "" {
		return nil
	}
	fs, err := gpufs.Mount(d.paths.mount, d, gpufs.Options{
		System: d.paths.system, SelfOf: d.inv.TaskOwner, Standing: standingOfThread, Control: d, Hides: d.hidesCommands, Metrics: d.writeMetrics, History: d.history, Logger: d.log})
	if err != nil {
		return err
	}
	if err := d.up(func() { d.fs = fs }); err != nil {
		return errors.Join(err, fs.Unmount())
	}
	return d.spawn(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-fs.Done():
			d.log.Warn("the filesystem was unmounted by somebody, or its connection was aborted: the socket goes on; a restart of the daemon mounts it again", "mount", d.paths.mount)
		}
	})
}

// goesWithout says whether the daemon starts without its filesystem. A user's own daemon does
// wherever FUSE is not to be had, as in most containers, unless --mount named a place. Where FUSE
// has gone from a machine whose programs are to be taken up, or somebody has mounted something else there, the programs are
// worth more than the view of them; a first start says instead what is wrong.
func (d *Daemon) goesWithout(err error) bool {
	if d.paths.optional && errors.Is(err, gpufs.ErrNoFuse) {
		d.log.Warn("no filesystem: the commands work without it (gpuarb ps, queue, devices)", "err", err)
		d.paths.mount = ""
		return true
	}
	d.lock()
	goes := len(d.sessions)+len(d.jobs) > 0 && !d.stopping()
	d.unlock()
	if goes {
		d.log.Error("no filesystem: programs run, and are served over the socket alone", "err", err)
	}
	return goes
}

// Snapshot is the whole state at this moment. It implements gpufs.View.
func (d *Daemon) Snapshot() figures.Snapshot {
	d.looked()
	return d.state()
}

// state returns the same as Snapshot, for the daemon's own use: it does not count as a look at the state (idle.go).
func (d *Daemon) state() figures.Snapshot { return d.texts.states.Get(d.snapshot) }

// Leases is the state of all leases, and of nothing else.
func (d *Daemon) Leases() figures.Snapshot {
	d.looked()
	return d.texts.leases.Get(func() figures.Snapshot {
		s := d.taken(d.arb.CopyOfLeases)
		s.Arrange()
		return s
	})
}

// SnapshotOf is the state of the processes that have a PID at this moment, and of their jobs.
func (d *Daemon) SnapshotOf(pid int) figures.Snapshot {
	d.looked()
	return d.taken(func(now time.Time) figures.Snapshot { return d.arb.SnapshotOf(now, idsOf(d.ofProcess[pid])...) })
}

func idsOf(sessions []*session) []arbiter.SessionID {
	ids := make([]arbiter.SessionID, len(sessions))
	for i, s := range sessions {
		ids[i] = s.id
	}
	return ids
}

// snapshot is Snapshot, however often it is asked for.
func (d *Daemon) snapshot() figures.Snapshot {
	defer d.caught(nil)
	s := d.taken(func(now time.Time) figures.Snapshot {
		s := d.arb.Copy(now)
		s.Config = d.configured
		return s
	})
	s.Arrange()
	s.Stats.Malformed = d.bad.Load()
	s.Version = version.Version
	s.Stats.Goroutines = uint64(runtime.NumGoroutine())
	return s
}

// taken takes a snapshot with the lock held.
func (d *Daemon) taken(take func(time.Time) figures.Snapshot) figures.Snapshot {
	d.lock()
	defer d.unlock()
	return take(d.now())
}

// Failed receives what ends a daemon that nobody stopped.
func (d *Daemon) Failed() <-chan error { return d.failed }

// Reload reads the configuration again. With a mistake in it the old one stays.
func (d *Daemon) Reload() {
	d.notify("RELOADING=1")
	defer d.notify("READY=1")
	cfg, path, err := d.load()
	if err != nil {
		d.log.Error("the configuration has mistakes: the old one stays in force", "err", err)
		var mistakes config.Mistakes
		errors.As(err, &mistakes)
		d.lock()
		d.configured.Mistakes = few(mistakes)
		d.unlock()
		return
	}
	d.lock()
	if d.stopping() {
		d.unlock()
		return
	}
	d.arb.SetPolicy(d.now(), cfg.Policy)
	d.dropRuleLimitsLocked()
	d.turnTo(cfg, path)
	d.showAllLocked()
	d.unlock()
	d.history.Show(cfg.Commands == config.CommandsOwn && os.Geteuid() == 0)
	d.page.Set(wantedPage(cfg))
	d.log.Info("configuration read again", "files", cfg.Files)
	d.keepConfig()
}

// keepConfig keeps the configuration in force on the disk, for a start at which the files have mistakes.
func (d *Daemon) keepConfig() {
	d.keeping.Lock()
	defer d.keeping.Unlock()
	d.lock()
	is, cfg := d.configured, d.config.Load()
	d.unlock()
	if is.Mistakes != "" {
		return // the configuration in force is the one that was kept
	}
	if err := d.keepGood(is.Path, cfg); err != nil {
		d.log.Warn("the configuration cannot be kept: if the files have a mistake at the next start, the daemon may not start", "err", err)
	}
}

// turnTo puts a configuration in force, but for what the arbiter makes of it.
func (d *Daemon) turnTo(cfg *config.Config, path string) {
	d.config.Store(cfg)
	d.configured = figures.ConfigState{Path: path, Text: cfg.String()}
	signal(d.turned)
}

// wantedPage is where a configuration has the page be served.
func wantedPage(c *config.Config) worker.Wanted {
	network, address := c.HTTP.Listen.Network()
	return worker.Wanted{Network: network, Address: address, Hosts: c.HTTP.Hosts, Commands: string(c.Commands)}
}

func lossOf(c *config.Config) uint32 {
	if c.OnLoss == config.LossClosed {
		return ipc.LossClosed
	}
	return ipc.LossOpen
}

// ensureDir makes the folder of the socket when it is absent: open to look into
// for the system's daemon, its owner's alone for a user's.
func (p paths) ensureDir() error {
	mode := os.FileMode(0o700)
	if p.system {
		mode = 0o755
	}
	dir := filepath.Dir(p.socket)
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("cannot make the runtime directory %s: %w", dir, err)
	}
	return nil
}
