package arbiter

import (
	"cmp"
	"slices"
	"time"
)

// This file has the order of the queue: by rank, which is priority plus age, then by arrival. cycle.go and decide.go sort the queue;
// limit.go compares requests.

// rankAfter is the waiting time that raises the priority of a request by one.
const rankAfter = time.Minute

// rank returns the priority of a ticket, raised by one for each rankAfter that it has waited.
func (a *Arbiter) rank(now time.Time, t *ticket) int {
	return t.priority + int(max(0, now.Sub(t.place.Since))/rankAfter)
}

// byArrival compares tickets by arrival.
func byArrival(x, y *ticket) int {
	return cmp.Or(cmp.Compare(x.place.Arrival, y.place.Arrival), cmp.Compare(x.id, y.id))
}

// compare orders requests by rank, the higher first, then by arrival. It uses the ranks at the time at which the queue was last sorted, so
// that the order does not change in between.
func (a *Arbiter) compare(x, y *ticket) int {
	if x.priority != y.priority {
		if c := cmp.Compare(a.rank(a.sorted, y), a.rank(a.sorted, x)); c != 0 {
			return c
		}
	}
	return byArrival(x, y)
}

// sort sorts the queue into the order in which requests are served now.
func (a *Arbiter) sort(now time.Time) {
	if now.After(a.sorted) {
		a.sorted = now
		slices.SortFunc(a.queue, a.compare)
	}
}
