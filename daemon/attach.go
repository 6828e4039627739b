package daemon

// This file answers requests of a session about devices: for a lease, for the free memory, and for the device of a
// driver. serve.go calls it. admit.go answers requests of the lease.

import (
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// attach opens the session's lease on a device, or returns the lease that it has.
func (cl *client) attach(r *ipc.AttachRequest) (ipc.AttachReply, error) {
	d, s := cl.d, cl.s
	dev, ok := d.deviceByUUID(r.Device)
	if !ok {
		d.requestScan()
		dev, ok = d.deviceByUUID(r.Device)
	}
	cl.takeLock()
	defer d.unlock()
	if s.dead {
		return ipc.AttachReply{}, refused(ipc.StatusNoSession, "the session has ended")
	}
	if !ok {
		return ipc.AttachReply{}, refused(ipc.StatusNoDevice, "%s", d.arb.UnknownDevice(d.now(), s.id, r.Device.String()))
	}
	attach := func(l *shim.Lease) (arbiter.LeaseInfo, error) { return d.arb.Attach(d.now(), s.id, dev.Index, l) }
	var info arbiter.LeaseInfo
	var err error
	if l := s.leaseOn(dev.Index); l != nil {
		info, err = attach(l)
	} else {
		info, err = d.openLeaseLocked(s, dev, s.freeSlot(), attach)
	}
	if err != nil {
		return ipc.AttachReply{}, err
	}
	return ipc.AttachReply{Slot: s.leaseOn(dev.Index).Record.Slot, Index: uint32(dev.Index), Total: uint64(info.Total),
		Budget: uint64(info.Budget), StreamsMax: uint32(info.StreamsMax), SlotScope: wireScope(info.SlotScope)}, nil
}

// query answers a Query request: the total and free memory that a program sees when it asks the driver.
func (cl *client) query(r *ipc.QueryRequest) (ipc.QueryReply, error) {
	room, err := cl.room(&ipc.RoomRequest{Device: r.Device})
	return ipc.QueryReply{Total: room.Total, Used: room.Used, Room: room.Room}, err
}

// room answers a Room request: the answer of query, and the credit word that the figures are based on.
func (cl *client) room(r *ipc.RoomRequest) (ipc.RoomReply, error) {
	d, s := cl.d, cl.s
	dev, ok := d.deviceByUUID(r.Device)
	if !ok {
		return ipc.RoomReply{}, refused(ipc.StatusNoDevice, "no device has the UUID %x", r.Device)
	}
	cl.awaitOwnContexts(dev.Index)
	cl.takeLock()
	defer d.unlock()
	room, err := d.arb.Query(d.now(), s.id, dev.Index)
	if err != nil {
		return ipc.RoomReply{}, err
	}
	rep := ipc.RoomReply{Total: uint64(room.Total), Used: uint64(room.Used), Room: uint64(room.Room), Slot: ipc.NoSlot}
	if room.Limited {
		rep.Flags = ipc.RoomLimited
	}
	if l := s.leaseOn(dev.Index); l != nil && room.Lease != 0 {
		d.published[l] = publication{s, publishRounds}
		publishRoomLocked(l, room)
		rep.Slot = l.Record.Slot
		rep.Word = uint64(ipc.MakeCreditWord(uint64(room.Credit), l.Epoch(), 0))
	}
	return rep, nil
}

// ownPatience is how long a question for the free memory waits for a reading that shows the contexts of its own
// program.
const ownPatience = 200 * time.Millisecond

// awaitOwnContexts waits, for ownPatience at most, until a reading has shown the contexts of the session on a device. A
// program often asks for the free memory just after it has made its context, and divides the answer up.
func (cl *client) awaitOwnContexts(device int) {
	d := cl.d
	for began := d.now(); ; {
		d.lock()
		unread := d.arb.UnreadOf(cl.s.id, device)
		d.unlock()
		left := ownPatience - d.now().Sub(began)
		if !unread || left <= 0 {
			return
		}
		cl.turn.WhileReleased(func() { d.awaitReading(device, left) })
	}
}

// driver answers which device counts the use of a driver that computes on the processor.
func (cl *client) driver(r *ipc.DriverRequest) (rep ipc.DriverReply, err error) {
	copy(rep.Device[:], inventory.ProcessorUUID)
	cl.takeLock()
	index, placed := cl.d.arb.DriverDevice(strings.TrimRight(string(r.Name[:]), "\x00"))
	cl.d.unlock()
	if dev, known := cl.d.deviceByIndex(index); placed && known {
		rep.Device = dev.UUIDBytes
	}
	return rep, nil
}

// copies records that the client uses two copies of a driver's library, and that one copy is not held to limits.
func (cl *client) copies(r *ipc.CopiesRequest) (ipc.Empty, error) {
	cl.takeLock()
	defer cl.d.unlock()
	cl.d.arb.TwoCopies(cl.d.now(), cl.s.id, r.Held.String(), r.Beside.String())
	return ipc.Empty{}, nil
}
