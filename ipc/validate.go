package ipc

// This file checks the values inside message bodies, for both sides. codec.go calls validate for each decoded body.

import (
	"math"
	"slices"
)

// validate checks the values inside a body of the right length. A body without an entry here has no invalid values.
func validate[T Body](body *T) *ProtocolError {
	switch m := any(body).(type) {
	case *AllocRequest:
		return m.validate()
	case *FreedNotice:
		return firstError(slot(m.Slot), zero("FreedNotice.Pad", uint64(m.Pad)))
	case *ObjectsRequest:
		return m.validate()
	case *StreamRequest:
		return firstError(slot(m.Slot), count("StreamRequest.Count", m.Count),
			bits("StreamRequest.Flags", m.Flags, FlagRetry|FlagNoWait|FlagAside|FlagAgain))
	case *ContextRequest:
		return firstError(slot(m.Slot), count("ContextRequest.Count", m.Count),
			bits("ContextRequest.Flags", m.Flags, FlagRetry|FlagNoWait|FlagNoticed|FlagHold|FlagAside|FlagAgain|FlagDriverFull|FlagDriverFullAgain))
	case *HelloRequest:
		return m.validate()
	case *ResumeRequest:
		return m.validate()
	case *JobOpenRequest:
		return m.validate()
	case *JobTallyReply:
		return firstError(upTo("JobTallyReply.Devices", m.Devices, PageSlots))
	case *BesideReply:
		return upTo("BesideReply.Count", m.Count, BesideMost)
	case *WarningsReply:
		return firstError(text("WarningsReply.IdleText", &m.IdleText), text("WarningsReply.AgedText", &m.AgedText))
	case *CancelRequest:
		if m.Ticket != 0 && !m.Job.IsZero() {
			return refuse(StatusRange, "CancelRequest names a ticket or a job, not both")
		}
	case *LimitRequest:
		return m.validate(LimitProcess, LimitRule)
	case *CgroupRequest:
		return firstError(m.Limit.validate(LimitCgroup, LimitCgroup), text("CgroupRequest.Path", &m.Path))
	case *BindRequest:
		return m.validate()
	case *UnbindRequest:
		return text("UnbindRequest.Cgroup", &m.Cgroup)
	case *SuspendRequest:
		return firstError(flag("SuspendRequest.Resume", m.Resume), zero("SuspendRequest.Reserved", uint64(m.Reserved)))
	case *WaitingReply:
		return firstError(zero("WaitingReply.Reserved", uint64(m.Reserved)), text("WaitingReply.Text", &m.Text))
	case *JobOpenReply:
		return m.validate()
	case *ErrorReply:
		return text("ErrorReply.Text", &m.Text)
	case *HelloReply:
		return firstError(flag("HelloReply.InJob", m.InJob), flag("HelloReply.OnLoss", m.OnLoss))
	case *AttachReply:
		return firstError(slot(m.Slot), upTo("AttachReply.SlotScope", m.SlotScope, ScopeThread))
	case *AllocReply:
		return text("AllocReply.Text", &m.Text)
	case *StreamReply:
		return text("StreamReply.Text", &m.Text)
	case *ContextReply:
		return firstError(zero("ContextReply.Reserved", uint64(m.Reserved)), text("ContextReply.Text", &m.Text))
	case *RoomReply:
		if m.Slot != NoSlot {
			return slot(m.Slot)
		}
		return zero("RoomReply.Word", m.Word)
	case *EventsRequest:
		return firstError(bits("EventsRequest.Flags", m.Flags, EventsFollow), zero("EventsRequest.Reserved", uint64(m.Reserved)))
	case *EventsPart:
		return firstError(flag("EventsPart.Last", m.Last), zero("EventsPart.Reserved", uint64(m.Reserved)))
	case *SnapshotPart:
		return firstError(flag("SnapshotPart.Last", m.Last), zero("SnapshotPart.Reserved", uint64(m.Reserved)))
	}
	return nil
}

func (m *AllocRequest) validate() *ProtocolError {
	switch {
	case m.Slot >= PageSlots:
		return slot(m.Slot)
	case m.Kind < MemoryPlain || m.Kind > MemoryGraph:
		return refuse(StatusRange, "AllocRequest.Kind is %d, not %d to %d", m.Kind, MemoryPlain, MemoryGraph)
	case m.Bytes == 0:
		return refuse(StatusRange, "AllocRequest.Bytes is 0")
	}
	return bits("AllocRequest.Flags", m.Flags, FlagRetry|FlagNoWait|FlagAside|FlagAgain|FlagFresh|FlagCaches|FlagNoCaches|FlagChosen|FlagDriverFull|FlagDriverFullAgain)
}

func (m *HelloRequest) validate() *ProtocolError {
	if m.Kind != KindShim && m.Kind != KindTool {
		return refuse(StatusRange, "HelloRequest.Kind is %d, not %d or %d", m.Kind, KindShim, KindTool)
	}
	return firstError(zero("HelloRequest.Features", uint64(m.Features)), share(m.Share),
		upTo("HelloRequest.OnFull", m.OnFull, OnFullWait), upTo("HelloRequest.SlotScope", m.SlotScope, ScopeThread),
		zero("HelloRequest.Reserved", uint64(m.Reserved)))
}

func (m *ResumeRequest) validate() *ProtocolError {
	if err := firstError(m.Hello.validate(), flag("ResumeRequest.HasPage", m.HasPage)); err != nil {
		return err
	}
	if m.Hello.Kind != KindShim {
		return refuse(StatusRange, "ResumeRequest.Hello.Kind is %d: only a shim (%d) resumes", m.Hello.Kind, KindShim)
	}
	if m.Count > PageSlots {
		return refuse(StatusRange, "ResumeRequest.Count is %d, a session has at most %d leases", m.Count, PageSlots)
	}
	var taken [PageSlots]bool
	for i := range m.Leases {
		l := &m.Leases[i]
		if i >= int(m.Count) {
			if *l != (ResumeLease{}) {
				return malformed("ResumeRequest.Leases[%d] is not zero, and Count is %d", i, m.Count)
			}
			continue
		}
		if err := firstError(slot(l.Slot), zero("ResumeLease.Reserved", uint64(l.Reserved))); err != nil {
			return err
		}
		if taken[l.Slot] {
			return refuse(StatusRange, "ResumeRequest.Leases[%d]: slot %d comes twice", i, l.Slot)
		}
		taken[l.Slot] = true
		if l.Used > CreditLimit {
			return refuse(StatusRange, "ResumeRequest.Leases[%d].Used is %d bytes, more than %d", i, l.Used, uint64(CreditLimit))
		}
		for j := range i {
			if m.Leases[j].Device == l.Device {
				return refuse(StatusRange, "ResumeRequest.Leases: device %v comes twice", l.Device)
			}
		}
	}
	return nil
}

func (m *ObjectsRequest) validate() *ProtocolError {
	err := firstError(slot(m.Slot), bits("ObjectsRequest.Flags", m.Flags, ObjectsMore), upTo("ObjectsRequest.Count", m.Count, ObjectsMakers),
		zero("ObjectsRequest.Pad", uint64(m.Pad)))
	for i := int(m.Count); i < ObjectsMakers && err == nil; i++ {
		if m.Makers[i] != (ObjectsMaker{}) {
			return malformed("ObjectsRequest.Makers[%d] is not zero, and Count is %d", i, m.Count)
		}
	}
	return err
}

func (m *JobOpenRequest) validate() *ProtocolError {
	if m.Devices > PageSlots {
		return refuse(StatusRange, "JobOpenRequest.Devices is %d, the most is %d", m.Devices, PageSlots)
	}
	if m.Flags&JobWait != 0 && m.Flags&JobNoWait != 0 {
		return refuse(StatusRange, "JobOpenRequest.Flags says both to wait and not to wait")
	}
	if m.Flags&JobEmptiest != 0 && m.Flags&(JobAny|JobClaim|JobExclusive) != 0 {
		return refuse(StatusRange, "JobOpenRequest.Flags asks for the emptiest device, which is shared, and for one that is free")
	}
	for i := range m.Device {
		if i >= int(m.Devices) && m.Device[i] != 0 {
			return malformed("JobOpenRequest.Device[%d] is not zero, and Devices is %d", i, m.Devices)
		}
		if i < int(m.Devices) && slices.Contains(m.Device[:i], m.Device[i]) {
			return refuse(StatusRange, "JobOpenRequest.Device: device %d comes twice", m.Device[i])
		}
	}
	return firstError(share(m.MemoryShare), share(m.MinShare), text("JobOpenRequest.Command", &m.Command),
		bits("JobOpenRequest.Flags", m.Flags, JobPerProcess|JobWait|JobNoWait|JobExclusive|JobAny|JobOnlyIfNone|JobClaim|JobRetry|JobProcessor|JobEmptiest))
}

func (m *BindRequest) validate() *ProtocolError {
	if err := firstError(m.Job.validate(), text("BindRequest.Cgroup", &m.Cgroup), upTo("BindRequest.Until", m.Until, UntilIdle),
		bits("BindRequest.Flags", m.Flags, BindLossOpen|BindContextsInside|BindAllowsAll),
		bits("BindRequest.Job.Flags", m.Job.Flags, JobPerProcess|JobWait|JobNoWait|JobProcessor|JobRetry)); err != nil {
		return err
	}
	if (m.Until == UntilIdle) != (m.IdleMillis != 0) {
		return refuse(StatusRange, "BindRequest.IdleMillis is %d, and Until is %d: only UntilIdle (%d) has a time", m.IdleMillis, m.Until, UntilIdle)
	}
	if wrong := CheckBindingName(m.Name.String()); wrong != nil {
		return refuse(StatusRange, "BindRequest.Name %q cannot be a name: %v", m.Name, wrong)
	}
	return nil
}

// validate checks the request and that its target lies between from and to.
func (m *LimitRequest) validate(from, to uint32) *ProtocolError {
	if m.Target < from || m.Target > to {
		return refuse(StatusRange, "LimitRequest.Target is %d, not %d to %d", m.Target, from, to)
	}
	settable, most := SetMax|SetMin|SetStreams, uint64(math.MaxUint64)
	switch m.Target {
	case LimitDevice:
		settable = SetSlots
	case LimitUser:
		settable, most = SetMax|SetStreams, math.MaxUint32
	case LimitRule:
		settable = SetMax | SetStreams
	case LimitCgroup:
		settable = SetMax | SetWithFolder
	}
	return firstError(upTo("LimitRequest.ID", m.ID, most), bits("LimitRequest.Set", m.Set, settable), share(m.MaxShare), share(m.MinShare),
		upTo("LimitRequest.Slots", m.Slots, math.MaxInt32), upTo("LimitRequest.Streams", m.Streams, math.MaxInt32),
		zero("LimitRequest.Reserved", uint64(m.Reserved)))
}

func (m *JobOpenReply) validate() *ProtocolError {
	if m.Devices > PageSlots {
		return refuse(StatusRange, "JobOpenReply.Devices is %d, the most is %d", m.Devices, PageSlots)
	}
	for i := range m.Device {
		d := &m.Device[i]
		switch {
		case i >= int(m.Devices) && *d != (JobDevice{}):
			return malformed("JobOpenReply.Device[%d] is not zero, and Devices is %d", i, m.Devices)
		case i < int(m.Devices) && (d.Vendor < VendorNVIDIA || d.Vendor > VendorCPU):
			return refuse(StatusRange, "JobOpenReply.Device[%d].Vendor is %d, not %d to %d", i, d.Vendor, VendorNVIDIA, VendorCPU)
		case d.Kind > JobDeviceMIG:
			return refuse(StatusRange, "JobOpenReply.Device[%d].Kind is %d, at most %d is known", i, d.Kind, JobDeviceMIG)
		}
	}
	return firstError(zero("JobOpenReply.Reserved", uint64(m.Reserved)), text("JobOpenReply.Text", &m.Text))
}

// firstError returns the first error that is not nil.
func firstError(errs ...*ProtocolError) *ProtocolError {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// slot checks the index of a lease's slot.
func slot(v uint32) *ProtocolError {
	if v >= PageSlots {
		return refuse(StatusRange, "slot %d, a page has %d", v, PageSlots)
	}
	return nil
}

// count refuses 0, and the smallest number, which has no positive counterpart.
func count(name string, v int32) *ProtocolError {
	if v == 0 || v == math.MinInt32 {
		return refuse(StatusRange, "%s is %d", name, v)
	}
	return nil
}

// share checks a share in per mille.
func share(v uint32) *ProtocolError {
	if v > 1000 {
		return refuse(StatusRange, "a share of %d per mille is more than the whole", v)
	}
	return nil
}

// bits refuses flags that are not defined.
func bits(name string, v, defined uint32) *ProtocolError {
	if v&^defined != 0 {
		return refuse(StatusRange, "%s is %#x, only %#x is defined", name, v, defined)
	}
	return nil
}

// upTo refuses values above most.
func upTo[N uint32 | uint64](name string, v, most N) *ProtocolError {
	if v > most {
		return refuse(StatusRange, "%s is %d, the most is %d", name, v, most)
	}
	return nil
}

// flag refuses values other than 0 and 1.
func flag(name string, v uint32) *ProtocolError {
	if v > 1 {
		return refuse(StatusRange, "%s is %d, not 0 or 1", name, v)
	}
	return nil
}

// zero checks a reserved field.
func zero(name string, v uint64) *ProtocolError {
	if v != 0 {
		return malformed("%s is %#x, it is reserved and must be 0", name, v)
	}
	return nil
}

// text checks that a text ends with a NUL.
func text(name string, t *Text) *ProtocolError {
	if t[TextSize-1] != 0 {
		return malformed("%s has no NUL in its %d bytes", name, TextSize)
	}
	return nil
}
