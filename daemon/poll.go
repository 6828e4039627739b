package daemon

import (
	"context"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
)

// pollEvery is how often overhead and unmanaged use are read from the devices.
const pollEvery = time.Second

// poll reads the devices once a second until ctx ends. A device that takes long
// to answer delays only its next reading.
func (d *Daemon) poll(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.after(pollEvery):
		}
		for _, dev := range d.inv.Devices() {
			d.observe(dev.Index)
		}
		d.checkSilent()
		d.mu.Lock()
		d.arb.Tick(d.now())
		d.checkState()
		d.agePlaces()
		d.drainEvents()
		d.mu.Unlock()
	}
}

// observe takes one reading of one device. What the leases used is looked at
// before and after it, so that an allocation made meanwhile is not taken for
// overhead.
func (d *Daemon) observe(index int) {
	d.mu.Lock()
	before := d.arb.Used(index)
	d.mu.Unlock()
	began := d.now()
	usage, err := d.inv.Read(index)
	if err != nil {
		d.log.Debug("cannot read the device", "device", index, "err", err)
		return
	}
	u := arbiter.Usage{Device: index, UsedBefore: before, Began: began}
	for _, p := range usage.Processes {
		pu := arbiter.ProcessUsage{PID: p.PID, Bytes: accounting.Bytes(p.Bytes)}
		d.describe(&pu)
		u.Processes = append(u.Processes, pu)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !usage.ProcessesKnown && !usage.Lost {
		return
	}
	if usage.Lost {
		d.arb.LoseDevice(d.now(), index)
	} else {
		d.arb.Observe(d.now(), u)
	}
	d.drainEvents()
}

// describe adds to a device's figure who the process is: a client is known by its
// session; of any other the kernel tells; of a dead one, who keeps its memory.
func (d *Daemon) describe(p *arbiter.ProcessUsage) {
	d.mu.Lock()
	client := d.sessionsOf.byPID[p.PID] > 0
	p.Keeper = d.keepers[p.PID]
	d.mu.Unlock()
	facts, err := d.inv.Facts(p.PID)
	switch {
	case p.Keeper != "":
		p.Command = p.Keeper
	case err != nil:
		p.Command = "?"
	case !client:
		p.Command = facts.Command
	}
	p.StartTicks = facts.StartTicks
}
