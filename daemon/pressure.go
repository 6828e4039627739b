package daemon

import (
	"encoding/binary"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/statefile"
)

// Pressures go on over a restart: each change is written down as it comes about. The time in which a request waits needs no
// writing, but for one sign of life for all of them: what the daemon has not lived to see counts for nobody.

// signEvery is how often the daemon says that it lives, while somebody waits for bytes: so much of a wait, at the most, is lost
// with a daemon that is killed.
const signEvery = 100 * time.Millisecond

// pressures is where pressures are written down.
type pressures struct {
	rows     map[arbiter.PressureOf]int
	strained bool          // somebody waits for bytes
	began    chan struct{} // somebody has begun to
}

func newPressures() pressures {
	return pressures{rows: map[arbiter.PressureOf]int{}, began: make(chan struct{}, 1)}
}

// pressureKey is whose pressure a record keeps.
type pressureKey struct {
	kind uint32
	key  [16]byte
}

// keepPressuresLocked writes down which pressures have changed.
func (d *Daemon) keepPressuresLocked() {
	changes := d.arb.PressureChanges()
	for _, c := range changes {
		d.keepPressureLocked(c)
	}
	if len(changes) > 0 {
		d.file.SetAlive(int64(d.uptime()))
	}
	if strained := d.arb.Strained(); strained != d.pressures.strained {
		d.pressures.strained = strained
		signal(d.pressures.began)
	}
}

func (d *Daemon) keepPressureLocked(c arbiter.PressureChange) {
	i, known := d.pressures.rows[c.Of]
	if c.Gone {
		if known {
			d.file.Pressures.Free(i)
			delete(d.pressures.rows, c.Of)
		}
		return
	}
	if !known {
		of, ok := d.pressureKeyLocked(c.Of)
		if !ok {
			return
		}
		at, row, err := d.file.Pressures.New()
		if err != nil {
			return // of the most that there are
		}
		i = at
		row.Kind, row.Key = of.kind, of.key
	}
	value := statefile.PressureValue{Some: int64(c.SomeTotal), Full: int64(c.FullTotal), Since: d.bootTime(c.Since)}
	if c.Some {
		value.States |= statefile.PressureSome
	}
	if c.Full {
		value.States |= statefile.PressureFull
	}
	if d.file.Pressures.At(i).Set(value); !known {
		d.file.Pressures.Commit(i)
		d.pressures.rows[c.Of] = i
	}
}

// pressureKeyLocked is what the next daemon knows by whose pressure it is. False: it will not be there then.
func (d *Daemon) pressureKeyLocked(of arbiter.PressureOf) (k pressureKey, ok bool) {
	switch {
	case of.User:
		k.kind = statefile.PressureOfUser
		binary.LittleEndian.PutUint32(k.key[:], of.UID)
	case of.Job == 0:
		dev, ok := d.deviceByIndex(of.Device)
		return pressureKey{statefile.PressureOfDevice, dev.UUIDBytes}, ok
	default:
		if j := d.jobByID[of.Job]; j != nil {
			return pressureKey{statefile.PressureOfJob, j.token}, true
		}
		p, ok := d.arb.SoleProcess(of.Job)
		k.kind = statefile.PressureOfProcess
		binary.LittleEndian.PutUint64(k.key[:], uint64(p.PID))
		binary.LittleEndian.PutUint64(k.key[8:], p.StartTicks)
		return k, ok
	}
	return k, true
}

// recoverPressuresLocked has the pressures of what is still there go on from what the last daemon wrote down. A device that is
// not there may be for the next daemon.
func (d *Daemon) recoverPressuresLocked() {
	of := d.pressureOwnersLocked()
	alive := d.file.Alive(int64(d.uptime()))
	now := d.now()
	d.file.Pressures.Each(func(i int, r *statefile.Pressure) {
		key := pressureKey{r.Kind, r.Key}
		to, user := arbiter.PressureOf{}, ""
		if r.Kind == statefile.PressureOfUser {
			to.User, to.UID = true, binary.LittleEndian.Uint32(r.Key[:])
			user = d.inv.UserName(to.UID)
		} else if owners := of[key]; len(owners) > 0 {
			to, of[key] = owners[0], owners[1:]
		} else {
			if r.Kind != statefile.PressureOfDevice {
				d.file.Pressures.Free(i)
			}
			return
		}
		if _, twice := d.pressures.rows[to]; twice { // the file was damaged
			d.file.Pressures.Free(i)
			return
		}
		some, full := r.Totals(alive)
		d.pressures.rows[to] = i
		d.arb.ResumePressure(now, to, user, time.Duration(some), time.Duration(full))
	})
}

// pressureOwnersLocked are the devices and jobs by what records know them by. A process with several sessions is several jobs.
func (d *Daemon) pressureOwnersLocked() map[pressureKey][]arbiter.PressureOf {
	of := map[pressureKey][]arbiter.PressureOf{}
	add := func(p arbiter.PressureOf) {
		if key, ok := d.pressureKeyLocked(p); ok {
			of[key] = append(of[key], p)
		}
	}
	for _, dev := range d.devices() {
		add(arbiter.PressureOf{Device: dev.Index})
	}
	for _, id := range d.arb.Jobs() {
		add(arbiter.PressureOf{Job: id})
	}
	return of
}

// showLife says that the daemon lives, as long as somebody waits for bytes.
func (d *Daemon) showLife() <-chan time.Time {
	d.lock()
	defer d.unlock()
	if !d.pressures.strained {
		return nil
	}
	d.file.SetAlive(int64(d.uptime()))
	return d.after(signEvery)
}
