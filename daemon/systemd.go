package daemon

// This file tells systemd how the daemon is doing.

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells systemd how the daemon is doing; without systemd it does nothing.
func (d *Daemon) notify(state string) {
	_, _ = sd.SdNotify(false, state)
}

// watchdog pings systemd's watchdog for as long as the lock can be had: a daemon
// that hangs is restarted, and its clients resume.
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
