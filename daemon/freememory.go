package daemon

// A program that asks how much memory is free asks again, some of them before each
// allocation. So the answer is left in its page and kept true there: each second, and with
// whatever the program itself is granted. After a minute without a question the program
// asks once more, so that this is done only for programs that look.

import (
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/shim"
)

const (
	publishEvery  = time.Second
	publishRounds = 60                    // rounds after a question
	publishBudget = 20 * time.Millisecond // for a round. Who is not reached in time asks
)

// publishFree shows those who asked how their memory is now: as many as there is time for, in the random order of a map.
func (d *Daemon) publishFree() <-chan time.Time {
	next := time.After(publishEvery) // of the time that pages show, not of the daemon's clock
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

// publishRoomLocked leaves the answer to a question in the asker's page.
func publishRoomLocked(l *shim.Lease, room arbiter.Room) {
	l.Show(shim.Shown{
		Beyond: min(room.Room, room.Total.Less(room.Used)).Less(room.Credit),
		Used:   room.Used.Plus(room.Credit), Total: room.Total, Limited: room.Limited,
	}, monotonicMillis())
}
