package arbiter_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// If the reply to a grant cannot be delivered, the daemon takes the grant back, and the client and the device are as before the request.
// recount_test.go tests what a client reports when it resumes.

// TestReceipts: a receipt takes back exactly what its request was granted, at once or after a wait. Earlier holdings of the lease stay, and
// the slot goes only with the last object.
func TestReceipts(t *testing.T) {
	t.Parallel()
	type state struct {
		used, left        accounting.Bytes
		streams, contexts int
		slot              bool
	}
	for name, r := range map[string]arbiter.Request{
		"bytes":    {What: arbiter.WantsBytes, Bytes: 3000},
		"streams":  {What: arbiter.WantsStreams, Count: 3},
		"contexts": {What: arbiter.WantsContexts, Count: 2},
		"holds":    {What: arbiter.WantsHolds, Count: 2},
	} {
		for _, before := range []string{"has nothing", "has some", "waits"} {
			t.Run(name+", "+before, func(t *testing.T) {
				t.Parallel()
				p := waiting()
				p.Defaults.StreamReserve = 100
				p.ContextReserve = size(1000)
				p.Devices = []rules.DeviceRule{{SlotsMax: 1}}
				w := newWorld(t, p, 1<<20)
				other, c := w.client(0, 0), w.client(0, 0)
				switch before {
				case "has some":
					c.must(500)
					c.streams(1)
					c.contexts(1)
				case "waits":
					other.streams(1)
				}
				now := func() state {
					room, err := w.arb.Query(w.now, c.session, 0)
					row := c.row()
					if err != nil {
						t.Fatal(err)
					}
					return state{row.Used, room.Room, row.Streams, row.Contexts, row.Slot}
				}
				r := r
				r.Lease = c.lease
				was, out := now(), w.arb.Ask(w.now, r)
				if before == "waits" {
					w.arb.Decisions()
					other.streams(-1)
					decided := w.arb.Decisions()
					if out.Waiting == 0 || len(decided) != 1 || decided[0].Ticket != out.Waiting {
						t.Fatalf("%+v, then %+v", out, decided)
					}
					was.left += p.Defaults.StreamReserve // for the stream of the other lease
					out = decided[0]
				}
				if !out.Granted || out.Receipt == (arbiter.Receipt{}) {
					t.Fatalf("not granted, or without a receipt: %+v", out)
				}
				if is := now(); !is.slot || r.What != arbiter.WantsHolds && is == was {
					t.Errorf("granted, and it has %+v", is)
				}
				if w.arb.TakeBack(w.now, out.Receipt); now() != was {
					t.Errorf("it has %+v, and had %+v", now(), was)
				}
			})
		}
	}
}
