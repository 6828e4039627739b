package daemon

// This file lists all goroutines that run for as long as the daemon, and has the work of each second. start.go starts
// them; goroutines.go has the type loop.

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

// loops returns the functions of all goroutines that run until Stop.
func (d *Daemon) loops() []func(context.Context) {
	return []func(context.Context){
		loop{next: d.after(readEvery), do: d.poll}.run,
		loop{wake: d.queue.sooner, do: d.tickWhenDue}.run,
		loop{wake: d.orphans.wake, next: d.after(readEvery), do: d.searchOrphans}.run,
		loop{wake: d.suspensions.wake, do: d.beginErrands}.run,
		loop{wake: d.driver.wake, next: time.After(0), do: d.settleDriverLimits}.run,
		loop{wake: d.execLost, do: d.recheckAll}.run,
		loop{next: time.After(publishEvery), do: d.publishFree}.run,
		d.history.Run, d.history.Journal, d.watchEvents, d.watchdog, d.mapJobs, d.page.Run, d.keepArchive,
	}
}

// poll does the work of each second, whether or not the devices answer.
func (d *Daemon) poll() <-chan time.Time {
	d.checkSocket()
	d.checkUnconnected()
	d.checkFolders()
	d.checkBindings()
	d.lock()
	defer d.unlock()
	d.checkDevicesLocked()
	d.arb.Tick(d.now())
	d.reserveAgainLocked()
	return d.after(readEvery)
}

// checkSocket makes the socket file again if it was removed, because programs that find no socket run without limits.
// It logs a failure once.
func (d *Daemon) checkSocket() {
	lost, err := d.listener.Renew()
	if errors.Is(err, os.ErrNotExist) && d.paths.ensureDir() == nil {
		_, err = d.listener.Renew()
	}
	const what = "the socket was removed or replaced by somebody"
	switch {
	case !lost:
		d.socketLost = false
	case err == nil:
		d.log.Warn(what+": it is made again", "socket", d.listener.Path())
	case !d.socketLost:
		d.socketLost = true
		advice := "remove what is in its place"
		if errors.Is(err, ipc.ErrInherited) {
			advice = "systemctl restart gpuarbd.socket gpuarbd.service"
		}
		d.log.Error(what+": programs that start now find no daemon, and run without its limits", "err", err, "advice", advice)
	}
}
