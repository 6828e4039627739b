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
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, dev := range d.inv.Devices() {
			d.observe(dev.Index)
		}
		d.mu.Lock()
		d.arb.Tick(time.Now())
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
	began := time.Now()
	usage, err := d.inv.Read(index)
	if err != nil {
		d.log.Debug("cannot read the device", "device", index, "err", err)
		return
	}
	u := arbiter.Usage{Device: index, UsedBefore: before, Began: began}
	for _, p := range usage.Processes {
		command, keeper := d.nameOf(p.PID)
		u.Processes = append(u.Processes, arbiter.ProcessUsage{
			PID: p.PID, Bytes: accounting.Bytes(p.Bytes), Command: command, Keeper: keeper})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !usage.ProcessesKnown && !usage.Lost {
		return
	}
	if usage.Lost {
		d.arb.LoseDevice(time.Now(), index)
	} else {
		d.arb.Observe(time.Now(), u)
	}
	d.drainEvents()
}

// nameOf names a process that is no client, or who keeps the memory of a dead
// one; clients are known by their session.
func (d *Daemon) nameOf(pid int) (command, keeper string) {
	d.mu.Lock()
	known := d.byPID[pid] > 0
	keeper = d.keepers[pid]
	d.mu.Unlock()
	if known || keeper != "" {
		return keeper, keeper
	}
	facts, err := d.inv.Facts(pid)
	if err != nil {
		return "?", ""
	}
	return facts.Command, ""
}
