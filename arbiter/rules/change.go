package rules

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file checks changes of live limits: who may make them, and whether their values make sense. table.go has the limits.

// Change sets live limits while programs run. Limits whose pointer is nil stay as they are.
type Change struct {
	Device   int              // index, or AllDevices
	Min, Max *accounting.Size // memory.min and memory.max; Max with Size.Max set: no limit
	Streams  *int             // streams of each lease on all devices; Device does not matter
	Slots    *int             // slots of a device; 0: no limit
	UID      uint32           // user of the asker
	User     string           // name of that user; "": not known
	PID      int              // PID of the asker; 0: not known
	// Privileged: the asker may make any change. Other askers may change limits of what they own, up to what the rules give or root has set.
	Privileged bool
	// Namespace is the PID namespace of the asker, as in Process. An asker who is not privileged may change only limits of jobs and
	// processes that its user opened in this namespace.
	Namespace uint64
	// Inside: the asker runs in the cgroup whose limit this is, and may not raise it.
	Inside bool
	// Lowers: the change comes from the lease page of a client that resumes. The limit was in force before, so that Namespace is not
	// checked and no event is made. It counts only if it lowers a limit.
	Lowers bool
}

// Errors of requests that are wrong. They are wrapped in an error whose text is a sentence for the user; see [Wrong].
var (
	ErrRange      = errors.New("out of range")
	ErrPermission = errors.New("not permitted")
)

// wrong is an error with a sentence for users as its text. It wraps one of the errors above.
type wrong struct {
	sentence string
	way      error
}

// Error returns the sentence, without the text of the wrapped error.
func (w *wrong) Error() string { return w.sentence }

// Unwrap returns the wrapped error.
func (w *wrong) Unwrap() error { return w.way }

// Wrong returns an error that wraps way, one of the errors above, and has only the sentence as its text.
func Wrong(way error, format string, args ...any) error {
	return &wrong{fmt.Sprintf(format, args...), way}
}

// String describes what a change sets, for messages.
func (c Change) String() string {
	var parts []string
	for _, r := range c.Rows() {
		parts = append(parts, fmt.Sprintf("%v=%v", r.File, r.Value))
	}
	text := strings.Join(parts, " ")
	if c.Device == AllDevices {
		return fmt.Sprintf(wording.OnEveryGPU, text)
	}
	return fmt.Sprintf(wording.OnDevice, text, accounting.DeviceName(c.Device, false))
}

// Rows returns a row for each file that the change sets, without Own.
func (c Change) Rows() (rows []Row) {
	put := func(file File, value accounting.Size, device int) {
		rows = append(rows, Row{Device: device, File: file, Value: value, UID: c.UID, Lowers: c.Lowers})
	}
	if c.Max != nil {
		put(MemoryMax, *c.Max, c.Device)
	}
	if c.Min != nil {
		put(MemoryMin, *c.Min, c.Device)
	}
	if n := c.Streams; n != nil {
		put(StreamsMax, accounting.Size{Bytes: accounting.Bytes(*n), Max: *n == NoStreams}, AllDevices)
	}
	if n := c.Slots; n != nil {
		put(SlotsMax, accounting.Size{Bytes: accounting.Bytes(*n), Max: *n == 0}, c.Device)
	}
	return rows
}

// Denied returns ErrPermission with a text. If the asker is root in a container, the text also says why that root is refused.
func (c Change) Denied(format string, args ...any) error {
	return Wrong(ErrPermission, format+"%s", append(args, wording.NotRoot(c.Namespace))...)
}

// MayPass reports whether the asker may set limits above those of the rules.
func (c Change) MayPass() bool { return c.Privileged || root(c.UID, c.Namespace) }

// Forces reports whether a change of an owner's limits may exceed the rules. owner is the owner's UID. ErrPermission: the asker is another
// user, and not privileged. what names the target in that error, and user its owner.
func (c Change) Forces(owner uint32, user, what string) (bool, error) {
	force := c.MayPass() && !c.Lowers
	if !force && c.UID != owner {
		return false, c.NotOwner(owner, user, what)
	}
	return force, nil
}

// NotOwner returns the error of a change by an asker that does not own its target. Its text is a whole sentence.
func (c Change) NotOwner(owner uint32, user, what string) error {
	who := "root"
	if owner != 0 {
		who = cmp.Or(wording.Plain(user), wording.User(owner, "")) + " or root"
	}
	return c.Denied(wording.NotOwner, who, what, cmp.Or(wording.Plain(c.User), wording.User(c.UID, "")))
}

// CheckOwner returns ErrRange if the change sets a limit that this kind of owner does not have, and ErrPermission if only root may set it. who is
// the name of the owner.
func (c Change) CheckOwner(of Owner, who string) error {
	kind := kinds[of.Kind]
	rows := c.Rows()
	switch {
	case slices.ContainsFunc(rows, func(r Row) bool { return !of.Has(r.File) }):
		return Wrong(ErrRange, kind.others, who)
	case c.Slots != nil && *c.Slots < 0:
		return Wrong(ErrRange, wording.NoSlots, *c.Slots)
	case kind.roots != "" && !c.MayPass():
		return c.Denied(kind.roots, who)
	}
	if of.Kind == OfCgroup {
		return CheckCgroup(of.Path)
	}
	return nil
}

// Has reports whether an owner of this kind has a limit.
func (of Owner) Has(file File) bool { return slices.Contains(kinds[of.Kind].files, file) }

// kinds says which limits each kind of owner has.
var kinds = map[Kind]struct {
	files  []File
	others string // message for a change of other files; its argument is the owner
	roots  string // message for a user other than root who changes a limit; "": the owner may lower the limits too
}{
	OfProcess: {[]File{MemoryMax, MemoryMin, StreamsMax}, wording.NoSlotsOf, ""},
	OfJob:     {[]File{MemoryMax, MemoryMin, StreamsMax}, wording.NoSlotsOf, ""},
	OfDevice:  {[]File{SlotsMax}, wording.DeviceHasSlots, wording.DeviceIsRoots},
	OfUser:    {[]File{MemoryMax, StreamsMax}, wording.UserHasNoMin, ""},
	OfRule:    {[]File{MemoryMax, StreamsMax}, wording.RuleMinIsFixed, wording.RuleIsRoots},
	OfCgroup:  {[]File{MemoryMax}, wording.CgroupHasMax, wording.CgroupIsRoots},
}

// maxCgroup is the length in bytes of the longest path of a cgroup that can have a limit: a message has 512 bytes for it, and ends it with a NUL.
const maxCgroup = 511

// CheckCgroup returns ErrRange if a path is not that of a cgroup that can have a limit. The root has none, as in cgroup v2.
func CheckCgroup(of string) error {
	switch {
	case of == "/":
		return Wrong(ErrRange, wording.CgroupIsRoot)
	case len(of) > maxCgroup:
		return Wrong(ErrRange, wording.CgroupTooLong, maxCgroup)
	case strings.Contains(of+"/", "/./"), strings.Contains(of+"/", "/../"):
		return Wrong(ErrRange, wording.CgroupHasDots, of)
	case !strings.HasPrefix(of, "/"), path.Clean(of) != of, strings.ContainsAny(of, "\n\x00"):
		return Wrong(ErrRange, wording.CgroupIsNone, of)
	}
	return nil
}

// On reports whether the change applies to a device.
func (c Change) On(device int) bool { return c.Device == AllDevices || c.Device == device }

// CheckStreams returns an error if a change of streams.max makes no sense or is not permitted. With Lowers a value that is too high is not an
// error: it then changes nothing.
func (c Change) CheckStreams(is Streams, force bool) error {
	switch {
	case c.Streams == nil:
	case *c.Streams < 1:
		return Wrong(ErrRange, wording.StreamsMaxTooFew, *c.Streams)
	case !c.Lowers && !force && *c.Streams > is.most:
		return c.Denied(wording.StreamsMaxAbove, *c.Streams, is.most)
	}
	return nil
}

// CheckMemory returns an error if a change of memory.max or memory.min on one device makes no sense or is not permitted.
func (c Change) CheckMemory(is Memory, b Bounds, force bool) error {
	if c.Lowers {
		return nil
	}
	most := is.Max
	if c.Max != nil {
		if most = b.Amount(*c.Max); most > is.most.Max && !force {
			return c.Denied(wording.MemoryAbove, "memory.max", most.Human(), is.most.Max.Human(), b.name())
		}
		if c.Inside && most > is.Max {
			return Wrong(ErrPermission, wording.RaisedInside, most.Human(), is.Max.Human(), b.name())
		}
	}
	if c.Min == nil {
		return nil
	}
	least := b.least(*c.Min, most)
	if least > is.most.Min && !force {
		return c.Denied(wording.MemoryAbove, "memory.min", least.Human(), is.most.Min.Human(), b.name())
	}
	if least > most {
		return Wrong(ErrRange, wording.MinAboveMax, least.Human(), most.Human(), b.name())
	}
	return nil
}

// Set adds a row for each file that the change sets. force: the change may exceed the rules.
func (l *Limits) Set(c Change, force bool) {
	for _, r := range c.Rows() {
		r.Own = !force
		l.Add(r)
	}
}
