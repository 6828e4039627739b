package daemon

// This file starts the daemon: it makes the parts and starts them in order. cmd/gpuarbd calls Start. stop.go stops
// them.

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/history"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/daemon/metrics"
	"github.com/gpuarb/gpuarb/gpufs"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/version"
	"github.com/gpuarb/gpuarb/internal/worker"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// Start starts a daemon and returns when it is ready for clients. Every error says what was wrong and what to do. If
// ctx ends, the start is abandoned, whatever it waits for.
func Start(ctx context.Context, o Options) (*Daemon, error) { return startWith(ctx, o, nil) }

// startWith does the work of Start. Tests pass change, which replaces parts of the daemon; nil: no part is replaced.
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
		paths: p, ctx: own, cancel: cancel, failed: make(chan error, 4), started: make(chan struct{}), execLost: make(chan struct{}, 1), configChanged: make(chan struct{}, 1), exporter: metrics.New(),
		sessions: map[ipc.Token]*session{}, sessionsByPID: map[int][]*session{}, threadRows: map[int]map[uint32]int{}, kept: newKeptLimits(),
		sessionCounts: newCounts(sessionBounds.within(files / filesPerSession)), jobCounts: newCounts(jobBounds.within(files / filesPerJob)), leaseCounts: newCounts(leaseBounds),
		jobs: map[ipc.Token]*job{}, jobByID: map[arbiter.JobID]*job{}, jobByOrigin: map[jobOrigin]*job{}, bindings: map[string]*job{}, conns: map[*ipc.Conn]*client{}, keepers: map[int]named{}, queue: newWaiters(), orphans: newOrphans(), driver: newDriverLimits(), suspensions: newSuspensions(), published: map[*shim.Lease]publication{}}
	d.known.Store(&table{})
	d.scans = newScans()
	d.load, d.keepGood, d.parts, d.stopOnce = o.load, o.keepLastGood, d.realParts(), sync.OnceValue(d.stop)
	if change != nil {
		change(&d.parts)
	}
	d.history = history.New(d.now, d.log)
	d.feed.init()
	d.changes.Now, d.changes.After = d.now, d.after
	d.arb = arbiter.New(cfg.Policy)
	d.words = shim.NewWords(func(id arbiter.LeaseID) { d.arb.Clamped(d.now(), id) })
	d.applyConfig(cfg, l.main)
	if l.mistakes != nil {
		d.configured.Mistakes = firstMistakes(l.mistakes)
		d.log.Error("the configuration has mistakes: the last one without mistakes is in force, until the files are corrected and read again",
			"kept", l.since.Format(time.DateTime), "err", l.mistakes)
	}
	d.history.SetNamesOnly(cfg.Commands == config.CommandsOwn && os.Geteuid() == 0)
	result := background(func() error {
		defer d.catchPanic(nil)
		defer close(d.started)
		return d.start(cfg)
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

// start starts the parts in order. If it fails, Stop ends the parts that were started. Stop may be called at any
// moment.
func (d *Daemon) start(cfg *config.Config) error {
	if err := d.openListener(); err != nil {
		return err
	}
	d.page = worker.New(d.log, d.listener.Path(), d.paths.socketMode(), pageJob)
	d.page.Set(wantedPage(cfg, d.listener.Path()))
	d.archive = d.newArchive()
	d.archive.Set(d.wantedArchive(cfg))
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
	if err := d.register(func() { d.reaper = reaper }); err != nil {
		return errors.Join(err, reaper.Close())
	}
	if err := d.openInventory(); err != nil {
		return err
	}
	d.addInitialDevices()
	d.keepDevices()
	if !fresh || d.file.HasBindings() || d.file.HasSuspensions() {
		d.recover()
	}
	d.startReaders()
	go d.scanDevices(d.ctx)
	if err := d.mount(); err != nil && !d.continuesWithoutMount(err) {
		return err
	}
	for _, f := range d.loops() {
		if err := d.spawn(f); err != nil {
			return err
		}
	}
	if err := d.spawn(func(context.Context) { d.keepConfig() }); err != nil {
		return err
	}
	d.ready.Store(true)
	d.notify("READY=1")
	go d.accept(d.ctx) // ends when the listener closes
	d.log.Info("ready", "version", version.Version, "socket", d.paths.socket, "mount", d.paths.mount,
		"devices", len(d.devices()))
	return nil
}

// realParts returns the parts of a daemon outside of tests.
func (d *Daemon) realParts() parts {
	return parts{
		clock: clock{time.Now, time.After, awake},
		inventory: func() machine {
			found := inventory.Open(inventory.Options{SysfsRoot: d.paths.sysfs, Last: d.lastDevices()})
			return realMachine{found, procfacts.NewReader()}
		},
		plugged: inventory.WatchDevices,
		probe:   probeMemory,
		listen:  d.openSocket,
	}
}

func (d *Daemon) openListener() error {
	l, err := d.listen()
	if err != nil {
		return err
	}
	if err := d.register(func() { d.listener = l }); err != nil {
		return errors.Join(err, l.Close())
	}
	return nil
}

// openInventory finds the devices. NVML may hang in its first call; the end of the daemon does not wait for it.
func (d *Daemon) openInventory() error {
	found := background(func() error {
		inv := d.inventory()
		err := d.register(func() { d.inv = inv })
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

// spawn runs f in a goroutine that Stop waits for.
func (d *Daemon) spawn(f func(context.Context)) error {
	return d.register(func() {
		d.wg.Go(func() {
			defer d.catchPanic(nil)
			f(d.ctx)
		})
	})
}

// mount mounts the filesystem, unless the daemon serves only the socket.
func (d *Daemon) mount() error {
	if d.paths.mount == "" {
		if d.mounted != nil {
			return d.mounted.Close() // else every access to the mount would wait
		}
		return nil
	}
	if d.notMounted != nil { // this process has fewer rights, and would fail for another reason
		return d.notMounted
	}
	fs, err := gpufs.Mount(d.paths.mount, d, gpufs.Options{
		System: d.paths.system, Mounted: d.mounted, SelfOf: d.inv.TaskOwner, Standing: standingOfThread, Control: d, Hides: d.hidesCommands, Within: d.viewOf, Metrics: d.writeMetrics, History: d.history, Logger: d.log})
	if err != nil {
		return err
	}
	if err := d.register(func() { d.fs = fs }); err != nil {
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

// continuesWithoutMount reports whether the daemon starts without its filesystem after a failed mount. There are two
// cases:
//
//   - a user's own daemon whose --mount was not given and which has no FUSE, as in most containers;
//   - a daemon that has recovered programs, because they are worth more than the view of them.
//
// Any other first start fails with the error.
func (d *Daemon) continuesWithoutMount(err error) bool {
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

// Failed returns a channel that receives the error with which the daemon ends by itself.
func (d *Daemon) Failed() <-chan error { return d.failed }
