package gpufs

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// The tree is described by three kinds of entries. An entry is made afresh from a
// snapshot; what it refers to is looked up again, by identity, whenever it is used.

// entry is one name in a directory.
type entry struct {
	name string
	id   identity
	uid  uint32
	dir  *directory                                               // one of these
	text func(*snapshot) ([]byte, bool)                           // false: what it tells of is gone
	part                                                          // of a snapshot that has it, and what is in it
	set  func(ctx context.Context, value string, by opener) error // of a file that can be written
	link func(tid uint32) (string, bool)
	log  History // or this: a file that only grows
}

// part is what a snapshot has to have: all, if nothing is said.
type part struct {
	pid    int  // the processes with this PID
	leases bool // the leases
}

// identity tells nodes apart, for as long as the mount lives. It becomes the inode
// number and generation.
type identity struct {
	kind       kind
	file       int    // which file of the directory; 0 is the directory itself
	device     int    // 0, or the index plus one
	id         uint64 // a PID, a job, a user, or what stands for a cgroup
	generation uint64 // tells two processes of one PID apart
}

type kind uint64

const (
	kindRoot kind = iota + 1
	kindDevice
	kindProcess
	kindProcessDevice
	kindJob
	kindUser
	kindCgroup
)

// ino packs an identity into an inode number below 2⁶³: 3 bits of kind, 6 of file,
// 14 of device, 40 of id. A job's number that has more goes into the generation.
func (i identity) ino() uint64 {
	return uint64(i.kind)<<60 | uint64(i.file)<<54 | uint64(i.device)<<40 | i.id&(1<<40-1)
}

// gen is the generation that goes with the inode number.
func (i identity) gen() uint64 { return i.generation ^ i.id>>40<<40 }

// directory is what a directory holds.
type directory struct {
	// list returns the entries in their order; false if the directory is gone.
	list func(*snapshot) ([]entry, bool)
	// changing: what is listed comes and goes by itself, not only with the directory.
	changing bool
	// fixed: the entries are always the same, whatever the snapshot; it may be nil.
	fixed bool
	// pid tells by a name of which processes alone a snapshot suffices to find it. Nil: it takes the whole one.
	pid func(name string) int
	// find returns one of them. Nil: it is looked for in list.
	find func(*snapshot, string) (entry, bool)
}

func (d *directory) entry(s *snapshot, name string) (entry, bool) {
	if d.find != nil {
		return d.find(s, name)
	}
	entries, _ := d.list(s)
	return named(entries, name)
}

// named is the entry with a name.
func named(entries []entry, name string) (entry, bool) {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return entry{}, false
	}
	return entries[i], true
}

// files is how tables are printed here: nothing rounded, nothing left out.
var files report.Style

// rendered is a file that prints a whole snapshot.
func rendered(print func(io.Writer, figures.Snapshot) error) func(*snapshot) ([]byte, bool) {
	return func(s *snapshot) ([]byte, bool) {
		var b bytes.Buffer
		if err := print(&b, s.Snapshot); err != nil {
			return nil, false // a buffer takes everything
		}
		return b.Bytes(), true
	}
}

// builder makes the entries; it holds what does not change.
type builder struct {
	Options
	uid     uint32 // of what belongs to the daemon
	device  []report.Field[figures.DeviceState]
	process []report.Field[report.Process]
	lease   []report.Field[report.Process]
	job     []report.Field[figures.JobState]
	user    []report.Field[figures.UserState]
	group   []fieldOfCgroup
}

type fieldOfCgroup = report.Field[figures.CgroupState]

func newBuilder(uid uint32, o Options) *builder {
	return &builder{
		Options: o, uid: uid,
		device:  report.DeviceFields(),
		process: report.ProcessFields(),
		lease:   report.LeaseFields(),
		job:     report.JobFields(),
		user:    report.UserFields(),
		group:   report.CgroupFields(),
	}
}

// number reads a name that is a number in its only spelling.
func number(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 63)
	return n, err == nil && strconv.FormatUint(n, 10) == name
}

func byName(a, b entry) int { return strings.Compare(a.name, b.name) }

// within makes entries those of a folder: with its identity, but for the file, its owner and its processes. It sorts them.
func within(of entry, entries []entry) []entry {
	slices.SortFunc(entries, byName)
	for i := range entries {
		e := &entries[i]
		if e.id.kind == 0 {
			e.id = of.id
			e.id.file = i + 1
		}
		e.uid, e.part = of.uid, of.part
	}
	return entries
}

// values makes a file of each field of a thing that find finds.
func values[T any](fields []report.Field[T], find func(*snapshot) (T, bool)) []entry {
	entries := make([]entry, 0, len(fields)+2)
	for _, f := range fields {
		entries = append(entries, entry{name: f.Name, text: func(s *snapshot) ([]byte, bool) {
			t, ok := find(s)
			if !ok {
				return nil, false
			}
			return []byte(f.Text(t)), true
		}})
	}
	return entries
}

// folder makes an entry a directory that is there as long as find finds its thing, or, where that costs less to say, as there says (else
// nil): with a file for each field, of which some can be written, and what more there is.
func folder[T any](b *builder, of entry, there func(*snapshot) bool, find func(*snapshot) (T, bool), fields []report.Field[T], setting Setting, more func() []entry) entry {
	if there == nil {
		there = func(s *snapshot) bool { _, ok := find(s); return ok }
	}
	of.dir = &directory{list: func(s *snapshot) ([]entry, bool) {
		if !there(s) {
			return nil, false
		}
		entries := values(fields, find)
		if more != nil {
			entries = append(entries, more()...)
		}
		return within(of, b.knobs(entries, setting)), true
	}}
	if of.pid != 0 {
		of.dir.pid = func(string) int { return of.pid }
	}
	return of
}

// knobs makes those of the entries writable that set a live limit of s.Of.
func (b *builder) knobs(entries []entry, s Setting) []entry {
	if b.Control == nil {
		return entries
	}
	for i := range entries {
		if s.writable(entries[i].name) {
			s := s
			s.Name = entries[i].name
			entries[i].set = func(ctx context.Context, value string, by opener) error {
				s.Value, s.UID, s.By, s.Standing = value, by.uid, by.pid, by.Standing
				return b.Control.Set(ctx, s)
			}
		}
	}
	return entries
}

// maxCommand is the longest text that is taken for a limit.
const maxCommand = 4096
