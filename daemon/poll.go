package daemon

import "context"

// poll does once a second what is due with time, whether or not a device answers.
func (d *Daemon) poll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.after(readEvery):
		}
		d.checkSilent()
		d.watchUnwatched()
		d.lock()
		d.checkDevicesLocked()
		d.arb.Tick(d.now())
		d.checkState()
		d.agePlacesLocked()
		d.unlock()
	}
}
