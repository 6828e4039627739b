package daemon

// This file reports the daemon's state to systemd. start.go, reload.go and stop.go call notify; loops.go runs
// watchdog. systemdmount.go has the mount that systemd's unit makes.

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify sends a state to systemd; without systemd it does nothing.
func (d *Daemon) notify(state string) {
	_, _ = sd.SdNotify(false, state)
}

// watchdog pings systemd's watchdog as long as it can acquire the lock. systemd restarts a daemon that hangs, and its
// clients resume.
func (d *Daemon) watchdog(ctx context.Context) {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	loop{next: time.After(every / 3), do: func() <-chan time.Time {
		next := time.After(every / 3)
		d.lock()
		alive := !d.stopping()
		d.unlock()
		if alive {
			d.notify(sd.SdNotifyWatchdog)
		}
		return next
	}}.run(ctx)
}
