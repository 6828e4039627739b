package daemon

import (
	"context"
	"time"
)

// duty is something that is done in a goroutine of its own: as often as wake asks for it, and when the time has come that it named
// itself the last time.
type duty struct {
	wake <-chan struct{}
	next <-chan time.Time
	do   func() (next <-chan time.Time)
}

// run does it until ctx ends.
func (t duty) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-t.next:
		}
		t.next = t.do()
	}
}

// duties are all of them, and those that have loops of their own.
func (d *Daemon) duties() []func(context.Context) {
	return []func(context.Context){
		duty{next: d.after(readEvery), do: d.poll}.run,
		duty{wake: d.queue.wake, do: d.deliver}.run,
		duty{wake: d.queue.sooner, do: d.tickWhenDue}.run,
		duty{wake: d.left.wake, do: d.findLeft}.run,
		duty{wake: d.pressures.began, do: d.showLife}.run,
		duty{wake: d.overrun, do: d.lookAgain}.run,
		duty{next: time.After(showEvery), do: d.keepShown}.run,
		d.history.Run, d.history.Journal, d.watchEvents, d.watchdog, d.mapJobs, d.page.Run,
	}
}

// rest waits for a time, or until the daemon is stopped.
func (d *Daemon) rest(over <-chan time.Time) {
	select {
	case <-d.ctx.Done():
	case <-over:
	}
}

// poll does once a second what is due with time, whether or not a device answers.
func (d *Daemon) poll() <-chan time.Time {
	d.checkSilent()
	d.watchUnwatched()
	d.spare.take()
	d.lock()
	defer d.unlock()
	d.checkDevicesLocked()
	d.arb.Tick(d.now())
	d.checkState()
	d.agePlacesLocked()
	return d.after(readEvery)
}
