package daemon

import (
	"math"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/statefile"
)

// Queue positions kept over a restart (places). The clients of requests that waited when the previous daemon ended ask this one again, each with
// the number of its request. Until all of them have, or returnPatience has passed, a request with a later place waits in its
// connection's goroutine before it reaches the arbiter (a new request has the latest place). So the order survives the daemon. After returnPatience
// the places that are left are dropped.

// returnPatience is how long a place is kept. A client that lost its daemon looks for it once a second.
const returnPatience = 3 * time.Second

// placeKey identifies a request that comes again: by its process, its type and its number.
type placeKey struct {
	procfacts.Started
	typ     ipc.Type
	request uint64
}

// places is the set of places of requests that have not come again yet. The daemon's lock guards it.
type places struct {
	of      map[placeKey]kept
	changed chan struct{} // closed, and replaced, when a place is taken up or dropped
}

// kept is a place that is kept for a request.
type kept struct {
	arbiter.Place
	index int       // of its record in the state file's tickets
	until time.Time // when it is dropped
	holds bool      // it is of the previous daemon, so that requests with a later place wait for it
}

// requestOf returns the number by which a request is known when it comes again. Numbers count within a session, and a Hello has none yet; it
// gets 0, because a process has only one Hello that waits.
func requestOf(h ipc.Header) uint64 {
	if h.Type == ipc.TypeHello {
		return 0
	}
	return h.Request
}

func keyOf(peer ipc.Peer, h ipc.Header) placeKey {
	return placeKey{startedOf(peer), h.Type, requestOf(h)}
}

// bootTime returns t as the time since the machine's start, by a clock that cannot be set.
func (c clock) bootTime(t time.Time) int64 { return int64(c.uptime() - c.now().Sub(t)) }

// fromBootTime is the inverse of bootTime.
func (c clock) fromBootTime(at int64) time.Time {
	return c.now().Add(-max(c.uptime()-time.Duration(at), 0))
}

// recoverPlacesLocked reads the places from the state file, and frees the records of processes that have ended.
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

// keepForLocked keeps the place of a request that this daemon sends back so that its client asks again. A process has as many such places as a
// session may have connections; a place beyond that is dropped, and its record freed.
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

// comesAgain returns the place of a request that waited before; the zero Place: it did not. It returns when no request with an earlier place
// of the previous daemon is still to come again, after returnPatience at most.
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

// aheadLocked reports whether a request with an earlier place of the previous daemon has not come again yet, and returns a channel that is closed
// when that may have changed.
func (d *Daemon) aheadLocked(arrival uint64) (bool, <-chan struct{}) {
	for _, k := range d.places.of {
		if k.holds && k.Arrival < arrival && d.now().Before(k.until) {
			return true, d.places.changed
		}
	}
	return false, nil
}

// cameBackLocked drops the kept place of a request that has come again and was decided or parked. Requests with later places need not wait for it
// any more.
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

// forgetPlacesLocked drops the places for which gone returns true, frees their records, and wakes the requests that wait in comesAgain.
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

// agePlacesLocked drops the places whose requests did not come again in time.
func (d *Daemon) agePlacesLocked() {
	now := d.now()
	d.forgetPlacesLocked(func(key placeKey) bool { return !now.Before(d.places.of[key].until) })
}
