package rules

import (
	"fmt"
	"math"
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file is the table of live limits: limits that were changed while programs ran, in place of those of a rule or a request. The key of a row is
// the owner of the limit ([Owner]), the name of the limit ([File]), the device, and whether the owner or a privileged user set it. The arbiter has
// one table for devices, rules, users, cgroups, jobs and processes. Jobs, sessions, rules, devices and caps point to their rows there;
// rule.go, job.go and this file compute limits from them. The daemon keeps each row in its state file.

// Kind is the kind of an owner of limits. Its values are those of the wire and of the state file.
type Kind uint32

// Kinds of owners.
const (
	OfProcess Kind = iota + 1
	OfJob
	OfDevice
	OfUser
	OfRule
	OfCgroup
)

// Owner identifies the owner of limits.
type Owner struct {
	Kind  Kind
	ID    uint64 // PID, number of the job, index of the device, UID, or Terms.ID of the rule; 0: a cgroup
	Start uint64 // start time of a process, or Terms.Says of a rule; 0: all other kinds
	Path  string // path of a cgroup, as /proc/PID/cgroup has it; "": all other kinds
}

// AllDevices in Change.Device and Row.Device means every device.
const AllDevices = -1

// NoStreams in Change.Streams removes the streams.max of a user.
const NoStreams = math.MaxInt32

// File identifies a limit by the file that shows it. Its values are those of the state file.
type File uint32

// Files of limits.
const (
	MemoryMax File = iota + 1
	MemoryMin
	StreamsMax // streams of each lease; its row is for all devices
	SlotsMax   // slots of a device
)

var fileNames = [...]string{MemoryMax: "memory.max", MemoryMin: "memory.min", StreamsMax: "streams.max", SlotsMax: "slots.max"}

// String returns the file's name.
func (f File) String() string { return fileNames[f] }

// FileNamed returns the file with a name; 0: no limit has that name.
func FileNamed(name string) File { return File(max(0, slices.Index(fileNames[:], name))) }

// Row is one live limit.
type Row struct {
	Device int // index, or AllDevices
	File   File
	Value  accounting.Size // bytes, or the number of streams or slots; Max set: no limit
	UID    uint32          // user who set it
	Own    bool            // the owner set it, within the limits of the rules and of privileged users; false: a privileged user set it
	Lowers bool            // it counts only if it lowers the limit
}

// Table lists the live limits of each owner.
type Table map[Owner]*Limits

// Limits are the live limits of one owner. A nil pointer has none.
type Limits struct {
	Of   Owner
	UID  uint32 // user who may lower them
	User string // name of that user; "": not known
	Rows []Row  // in the order in which they were set; the last counts; Add replaces the slice and leaves the old one as it is
}

// Add appends a row, and removes earlier rows for the same file whose devices it covers. But a row of the owner does not remove the row
// of a privileged user, which limits it.
func (l *Limits) Add(r Row) {
	rows := slices.DeleteFunc(slices.Clone(l.Rows), func(old Row) bool {
		return old.File == r.File && (r.Device == AllDevices || r.Device == old.Device) && (old.Own || !r.Own)
	})
	l.Rows = append(rows, r)
}

// of returns the rows in force for a file on a device: the last row of a privileged user, and the row that the owner set after that; nil: none.
func (l *Limits) of(device int, file File) (forced, own *Row) {
	if l == nil {
		return nil, nil
	}
	for i := range l.Rows {
		switch r := &l.Rows[i]; {
		case r.File != file || r.Device != AllDevices && r.Device != device:
		case r.Own:
			own = r
		default:
			forced, own = r, nil
		}
	}
	return forced, own
}

// last returns the value that was set last for a file on a device; nil: none was set.
func (l *Limits) last(device int, file File) *accounting.Size {
	forced, own := l.of(device, file)
	switch {
	case own != nil:
		return &own.Value
	case forced != nil:
		return &forced.Value
	}
	return nil
}

// Max returns the memory.max that was set last for all devices; nil: none was set.
func (l *Limits) Max() *accounting.Size { return l.last(AllDevices, MemoryMax) }

// Slots returns the slots.max that was set on a device, 0 for no limit, and who set it. ok is false if none was set.
func (l *Limits) Slots(device int) (most int, by string, ok bool) {
	forced, _ := l.of(device, SlotsMax)
	if forced == nil {
		return 0, "", false
	}
	return int(forced.Value.Bytes), l.by(forced), true
}

// by names the user who set a row, for messages.
func (l *Limits) by(r *Row) string { return wording.Setter(r.UID, l.UID, l.User) }

// Unlimited reports whether no row sets a limit: all say "max".
func (l *Limits) Unlimited() bool {
	return !slices.ContainsFunc(l.Rows, func(r Row) bool { return !r.Value.Max })
}

// String names the owner of a user's or a cgroup's limits, for messages.
func (l *Limits) String() string {
	if l.Of.Kind == OfCgroup {
		return fmt.Sprintf(wording.Cgroup, wording.Plain(l.Of.Path))
	}
	return wording.User(uint32(l.Of.ID), l.User)
}

// Memory returns how much all programs of a user, or in a cgroup, may hold together on a device.
func (l *Limits) Memory(b Bounds) Memory {
	m := Unlimited()
	m.change(l, b)
	if m.Max == accounting.Max {
		m.MaxBy = ""
	}
	return m
}

// Streams returns how many streams each lease of a user may have.
func (l *Limits) Streams() Streams {
	s := Streams{Max: NoStreams, most: NoStreams}
	s.change(l)
	return s
}

// lower lowers the streams.max of a lease to that of each lease of its user.
func (l *Limits) lower(s *Streams) {
	if l == nil {
		return
	}
	most := l.Streams()
	if most.Max < s.Max {
		s.Max, s.By = most.Max, fmt.Sprintf(wording.ByFor, most.By, wording.AllPrograms+l.String())
	}
	s.most = min(s.most, most.Max)
}

// change replaces the limits of m on a device by live limits.
func (m *Memory) change(l *Limits, b Bounds) {
	forced, own := l.of(b.Device, MemoryMax)
	if forced != nil {
		m.Max, m.MaxBy = b.Amount(forced.Value), l.by(forced)
		m.most.Max = m.Max
	}
	if own != nil {
		if most := min(b.Amount(own.Value), m.most.Max); most < m.Max || !own.Lowers {
			m.Max, m.MaxBy = most, l.by(own)
		}
	}
	forced, own = l.of(b.Device, MemoryMin)
	if forced != nil {
		m.Min, m.MinBy = b.least(forced.Value, m.Max), l.by(forced)
		m.most.Min = m.Min
	}
	if own != nil {
		if least := min(b.least(own.Value, m.Max), m.most.Min); least < m.Min {
			m.Min, m.MinBy = least, l.by(own)
		}
	}
}

// change replaces the limits of s by live limits, and raises a result below 1 to 1.
func (s *Streams) change(l *Limits) {
	forced, own := l.of(AllDevices, StreamsMax)
	if forced != nil {
		n := int(forced.Value.Bytes)
		s.Max, s.most, s.By = n, n, l.by(forced)
	}
	if own != nil {
		if n := min(int(own.Value.Bytes), s.most); n < s.Max || !own.Lowers {
			s.Max, s.By = n, l.by(own)
		}
	}
	s.Max = max(1, s.Max)
}
