package daemon

import (
	"time"

	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// measuresMost is how often a session may have a device read in a second.
	measuresMost = 10
	// measurePatience is how long a client waits for a reading: it holds up a call of
	// its program, which can do without.
	measurePatience = time.Second
)

// measure tells a client what the device says of its process, and what its lease used
// around the reading. Nothing follows from it here: a client that is told nothing goes on,
// and what it takes is found by the readings for the books.
func (cl *client) measure(r *ipc.MeasureRequest) (ipc.MeasureReply, error) {
	d, s := cl.d, cl.s
	d.lock()
	ref, err := s.lease(r.Slot)
	var before uint64
	may := false
	if err == nil {
		before = uint64(d.arb.UsedBy(ref.ID))
		may, _ = s.measured.Admit(d.now(), s.peer.UID)
	}
	d.unlock()
	if !may {
		return ipc.MeasureReply{}, err
	}
	usage, ok := d.fresh(ref.Device, measurePatience)
	if !ok || !usage.ProcessesKnown || usage.Lost {
		return ipc.MeasureReply{}, nil
	}
	d.lock()
	after := uint64(d.arb.UsedBy(ref.ID))
	d.unlock()
	return ipc.MeasureReply{Known: 1, Figure: figureOf(usage, s.peer.PID),
		Most: max(before, after), Least: min(before, after)}, nil
}

// figureOf is what a reading says of a process; graphics and compute may be listed apart.
func figureOf(usage inventory.Usage, pid int) (bytes uint64) {
	for _, p := range usage.Processes {
		if p.PID == pid {
			bytes = max(bytes, p.Bytes)
		}
	}
	return bytes
}
