package daemon

import (
	"math"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/statefile"
)

// TestWhatIsSentBackHoldsNobody: a request that a living daemon sends back keeps its place, and nobody else is held
// back until it comes; of one process so many are kept, and each for as long as one of a daemon that died.
func TestWhatIsSentBackHoldsNobody(t *testing.T) {
	b := newClockedBench(t, gib)
	b.lock()
	defer b.unlock()
	const process = 7
	for request := range uint64(2 * connsPerSession) {
		index, _, err := b.file.Tickets.New()
		if err != nil {
			t.Fatal(err)
		}
		b.file.Tickets.Commit(index)
		b.keepForLocked(placeKey{Started: procfacts.Started{PID: process}, typ: ipc.TypeAlloc, request: request}, arbiter.Place{Arrival: 1 + request}, index)
	}
	if ahead, _ := b.aheadLocked(math.MaxUint64); ahead {
		t.Error("a newcomer is held back")
	}
	kept := 0
	b.file.Tickets.Each(func(int, *statefile.Ticket) { kept++ })
	if kept != connsPerSession || len(b.places.of) != connsPerSession {
		t.Errorf("%d records and %d places of one process, want %d", kept, len(b.places.of), connsPerSession)
	}
	b.clock.Advance(returnPatience + 1)
	b.agePlacesLocked()
	if len(b.places.of) != 0 {
		t.Errorf("%d places are kept for ever", len(b.places.of))
	}
}
