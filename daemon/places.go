package daemon

import (
	"math"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/statefile"
)

// Requests that waited when the daemon before this one ended come again, each with its
// number. Until they are all back, or returnPatience has passed, requests with a later place
// (a new request has the latest) are held back, so that order survives the daemon. Then their places are free.

// returnPatience is how long a place is kept. A client that lost its daemon looks for it once a second.
const returnPatience = 3 * time.Second

// placeKey knows a request that comes again.
type placeKey struct {
	procfacts.Started
	typ     ipc.Type
	request uint64
}

// places are those of requests that have not come again yet. The lock guards them.
type places struct {
	of      map[placeKey]kept
	changed chan struct{} // closed when one comes back
}

// kept is a place, and its record.
type kept struct {
	arbiter.Place
	index int
	until time.Time
	holds bool // requests with a later place are held back for it: the daemon before this one had it
}

// requestOf is the number by which a request is known when it comes again. A Hello has no
// session whose number it could be: a process says one.
func requestOf(h ipc.Header) uint64 {
	if h.Type == ipc.TypeHello {
		return 0
	}
	return h.Request
}

func keyOf(peer ipc.Peer, h ipc.Header) placeKey {
	return placeKey{startedOf(peer), h.Type, requestOf(h)}
}

// bootTime is t on the clock of this boot, which nobody can set.
func (c clock) bootTime(t time.Time) int64 { return int64(c.uptime() - c.now().Sub(t)) }

// fromBootTime is the inverse of bootTime.
func (c clock) fromBootTime(at int64) time.Time {
	return c.now().Add(-max(c.uptime()-time.Duration(at), 0))
}

// recoverPlacesLocked takes up the places of processes that live.
func (d *Daemon) recoverPlacesLocked() {
	d.file.Tickets.Each(func(i int, r *statefile.Ticket) {
		key := placeKey{procfacts.Started{PID: int(r.PID), StartTicks: r.StartTicks}, ipc.Type(r.Type), r.Request}
		pidfd, gone := d.stillThere(key.Started)
		closeFD(pidfd)
		if _, twice := d.places.of[key]; gone || twice {
			d.file.Tickets.Free(i)
			return
		}
		d.arb.ArriveAfter(r.Arrival)
		d.places.of[key] = kept{Place: arbiter.Place{Arrival: r.Arrival, Since: d.fromBootTime(r.Since)}, index: i, until: d.now().Add(returnPatience), holds: true}
	})
	d.awaited.Store(len(d.places.of) > 0)
}

// keepForLocked keeps the place of a request that is sent back to come again: of as many of a process as it can have
// connections in a session.
func (d *Daemon) keepForLocked(key placeKey, place arbiter.Place, index int) {
	of := 0
	for other := range d.places.of {
		if other.Started == key.Started {
			of++
		}
	}
	if _, twice := d.places.of[key]; twice || of >= connsPerSession {
		d.file.Tickets.Free(index)
		return
	}
	d.places.of[key] = kept{Place: place, index: index, until: d.now().Add(returnPatience)}
	d.awaited.Store(true)
}

// comesAgain returns the place of a request that waited before, when it is its turn to
// come back; the zero Place for any other, when nobody is to come back before it.
func (cl *client) comesAgain(h ipc.Header, retry bool) (place arbiter.Place) {
	if cl.d.awaited.Load() {
		cl.turn.Out(func() { place = cl.d.comesAgain(cl.conn.Peer(), h, retry) })
	}
	return place
}

func (d *Daemon) comesAgain(peer ipc.Peer, h ipc.Header, retry bool) (place arbiter.Place) {
	arrival := uint64(math.MaxUint64)
	d.lock()
	if k, ok := d.places.of[keyOf(peer, h)]; ok && retry {
		place, arrival = k.Place, k.Arrival
	}
	ahead, changed := d.aheadLocked(arrival)
	d.unlock()
	late := d.after(returnPatience)
	for ahead {
		select {
		case <-changed:
		case <-late:
			return place
		case <-d.ctx.Done():
			return place
		}
		d.lock()
		ahead, changed = d.aheadLocked(arrival)
		d.unlock()
	}
	return place
}

// aheadLocked says whether somebody with an earlier place has not come back, and what tells
// when that changes.
func (d *Daemon) aheadLocked(arrival uint64) (bool, <-chan struct{}) {
	for _, k := range d.places.of {
		if k.holds && k.Arrival < arrival && d.now().Before(k.until) {
			return true, d.places.changed
		}
	}
	return false, nil
}

// cameBackLocked is for a request that was carried out or is parked: others need not wait for
// it any more.
func (d *Daemon) cameBackLocked(peer ipc.Peer, h ipc.Header) {
	if !d.awaited.Load() {
		return
	}
	key := keyOf(peer, h)
	if k, ok := d.places.of[key]; ok {
		d.forgetPlacesLocked(func(other placeKey) bool { return other == key })
		d.log.Debug("a request is back in its place", "client_pid", key.PID, "arrival", k.Arrival)
	}
}

// forgetPlacesLocked drops the places that gone picks.
func (d *Daemon) forgetPlacesLocked(gone func(placeKey) bool) {
	changed := false
	for key, k := range d.places.of {
		if gone(key) {
			d.file.Tickets.Free(k.index)
			delete(d.places.of, key)
			changed = true
		}
	}
	if changed {
		close(d.places.changed)
		d.places.changed = make(chan struct{})
		d.awaited.Store(len(d.places.of) > 0)
	}
}

// agePlacesLocked drops places that nobody came for.
func (d *Daemon) agePlacesLocked() {
	now := d.now()
	d.forgetPlacesLocked(func(key placeKey) bool { return !now.Before(d.places.of[key].until) })
}
