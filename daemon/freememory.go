package daemon

// This file publishes the free memory on the lease pages of programs that asked for it. attach.go adds a lease;
// loops.go runs publishFree.
//
// A program that asks how much memory is free asks again, some programs before each allocation. The daemon therefore
// leaves the answer in the page and updates it each second; each grant to the program updates it too. After a minute
// the program must ask once more, so that the work is done only for programs that use the answer.

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/shim"
)

const (
	publishEvery  = time.Second
	publishRounds = 60                    // updates after a question
	publishBudget = 20 * time.Millisecond // time for one update of all leases; an answer that is not reached grows old, and its program asks again
)

// publishFree updates the answers on the pages of programs that asked: as many as there is time for, in the random
// order of a map.
func (d *Daemon) publishFree() <-chan time.Time {
	next := time.After(publishEvery) // real time, which pages show; tests may replace the daemon's clock
	d.lock()
	defer d.unlock()
	began := time.Now()
	for l, of := range d.published {
		if time.Since(began) >= publishBudget {
			break
		}
		room, err := d.arb.Query(d.now(), of.s.id, l.Device)
		if of.rounds--; err != nil || of.rounds == 0 || room.Lease != l.ID {
			delete(d.published, l)
			l.Hide()
			continue
		}
		d.published[l] = of
		publishRoomLocked(l, room)
	}
	return next
}

// publishRoomLocked writes the free memory to the page of a lease.
func publishRoomLocked(l *shim.Lease, room arbiter.Room) {
	l.Show(shim.Shown{
		Beyond: min(room.Room, room.Total.Less(room.Used)).Less(room.Credit),
		Used:   room.Used.Plus(room.Credit), Total: room.Total, Limited: room.Limited,
	}, monotonicMillis())
}
