package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/inventory"
)

// Devices come while the daemon runs: a driver that is loaded late or installed, a card that is plugged
// in, an instance that MIG makes. This file asks the inventory to look for them; devices.go adds them to the table.

const (
	// scanFirst is how often devices are looked for while there is no GPU, and scanEvery when there is one.
	scanFirst = 3 * time.Second
	scanEvery = 8 * time.Second
	// scanRest is the pause after a look that the kernel, or a program with an unknown device, asked for.
	scanRest = 500 * time.Millisecond
	// scanPatience is how long a program with an unknown device waits for a look.
	scanPatience = time.Second
)

// scans lets goroutines ask for a look at the devices, and wait for its end.
type scans struct {
	wake chan struct{}
	mu   sync.Mutex
	next chan struct{} // closed when the next look to begin is over
	last time.Time     // when a look ended
}

func newScans() scans { return scans{wake: make(chan struct{}, 1), next: make(chan struct{})} }

// scanDevices looks for devices until ctx ends. Stop does not wait for it: a driver may hang.
func (d *Daemon) scanDevices(ctx context.Context) {
	defer d.caught(nil)
	go func() {
		defer d.caught(nil)
		if err := d.plugged(ctx, func() { signal(d.scans.wake) }); err != nil {
			d.log.Info("the kernel does not tell when a device comes: it is looked for from time to time", "err", err)
		}
	}()
	for ctx.Err() == nil {
		every := scanEvery
		if !slices.ContainsFunc(d.devices(), isGPU) {
			every = scanFirst
		}
		select {
		case <-ctx.Done():
		case <-d.scans.wake:
			d.scan()
			d.rest(d.after(scanRest))
		case <-d.after(every):
			if !d.asleep() {
				d.scan()
			}
		}
	}
}

// asleep reports whether the kernel has suspended a known device, which a look would wake.
func (d *Daemon) asleep() bool {
	return slices.ContainsFunc(d.devices(), func(dev inventory.Device) bool { return d.inv.Suspended(dev.Index) })
}

// scan looks for devices once.
func (d *Daemon) scan() {
	s := &d.scans
	s.mu.Lock()
	over := s.next
	s.next = make(chan struct{})
	s.mu.Unlock()
	if found := d.inv.Scan(); len(found) > 0 && !d.stopping() {
		for _, r := range d.meet(found) {
			go r.run(d.ctx)
		}
		d.keepDevices()
		d.log.Info("devices came", "found", len(found), "devices", len(d.devices()))
		go d.probeUnknown()
	}
	s.mu.Lock()
	s.last = d.now()
	s.mu.Unlock()
	close(over)
}

// lookFor asks for a look because a program names a device that is not known, and waits for its end, scanPatience at the most. If
// the last look ended less than scanPatience ago, or a known GPU is suspended, it does nothing: programs cannot make the daemon look
// without a pause, nor keep a GPU awake.
func (d *Daemon) lookFor() {
	s := &d.scans
	s.mu.Lock()
	over, recent := s.next, !s.last.IsZero() && d.now().Sub(s.last) < scanPatience
	s.mu.Unlock()
	if recent || d.asleep() {
		return
	}
	signal(s.wake)
	select {
	case <-over:
	case <-d.after(scanPatience):
	case <-d.ctx.Done():
	}
}
