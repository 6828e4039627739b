package gpufs

// This file has the parts of the tree: entries, directories, and the functions that make a folder of files. root.go,
// subtrees.go, users.go and cgroups.go use them; node.go makes nodes of entries.
//
// An entry is made for one answer, from a snapshot. Its functions find their process, job or device again by identity
// each time that they run.

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

// entry is one name in a directory. Exactly one of dir, text, link and log is set.
type entry struct {
	name string
	id   identity
	uid  uint32
	dir  *directory                                               // a directory
	text func(*snapshot) ([]byte, bool)                           // a file's content; false: its process or job has ended
	part                                                          // the part of a snapshot that the entry needs
	set  func(ctx context.Context, value string, by opener) error // takes a written value; nil: the file is read-only
	link func(tid uint32) (string, bool)                          // the target of a symbolic link, for a calling thread
	log  History                                                  // the content of a file that only grows
}

// part selects the content of a snapshot. The zero value selects everything.
type part struct {
	pid    int  // the processes with this PID, their leases and jobs; 0: all
	leases bool // the leases only
}

// identity distinguishes nodes for the lifetime of the mount. It becomes the inode number and the generation.
type identity struct {
	kind       kind
	file       int    // number of the file in its directory; 0: the directory itself
	device     int    // device index plus one; 0: none
	id         uint64 // a PID, a job's number, a UID, or part of a cgroup's hash
	generation uint64 // start time of a process, because PIDs are reused
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

// ino packs an identity into an inode number below 2⁶³: 3 bits of kind, 6 of file, 14 of device, 40 of id. Higher
// bits of id go into the generation.
func (i identity) ino() uint64 {
	return uint64(i.kind)<<60 | uint64(i.file)<<54 | uint64(i.device)<<40 | i.id&(1<<40-1)
}

// gen returns the generation of the inode number.
func (i identity) gen() uint64 { return i.generation ^ i.id>>40<<40 }

// directory lists and finds the entries of a directory.
type directory struct {
	// list returns the entries in order; false: the directory is gone.
	list func(*snapshot) ([]entry, bool)
	// changing means that entries come and go while the directory exists.
	changing bool
	// fixed means that the entries never change. list then ignores its snapshot, which may be nil.
	fixed bool
	// pid returns, for a name, the PID whose part of a snapshot suffices to find the entry. nil: the whole snapshot
	// is needed.
	pid func(name string) int
	// find returns the entry with a name. nil: the entry is searched in list.
	find func(*snapshot, string) (entry, bool)
}

// entry returns the entry with a name.
func (d *directory) entry(s *snapshot, name string) (entry, bool) {
	if d.find != nil {
		return d.find(s, name)
	}
	entries, _ := d.list(s)
	return named(entries, name)
}

// named returns the entry with a name from a list.
func named(entries []entry, name string) (entry, bool) {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return entry{}, false
	}
	return entries[i], true
}

// files is the style of tables in files: no rounding and no omissions.
var files report.Style

// rendered makes a file's content of a function that prints a whole snapshot.
func rendered(print func(io.Writer, figures.Snapshot) error) func(*snapshot) ([]byte, bool) {
	return func(s *snapshot) ([]byte, bool) {
		var b bytes.Buffer
		if err := print(&b, s.Snapshot); err != nil {
			return nil, false // never happens: a buffer accepts all writes
		}
		return b.Bytes(), true
	}
}

// builder makes the entries. Its fields do not change.
type builder struct {
	Options
	uid     uint32 // owner of the daemon's own files
	device  []report.Field[figures.DeviceState]
	process []report.Field[report.Process]
	lease   []report.Field[report.Process]
	job     []report.Field[figures.JobState]
	user    []report.Field[figures.UserState]
	group   []cgroupField
}

type cgroupField = report.Field[figures.CgroupState]

// newBuilder makes a builder for files of the user uid.
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

// number parses a number; it accepts only the shortest spelling, so that each number has one name.
func number(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 63)
	return n, err == nil && strconv.FormatUint(n, 10) == name
}

// byName orders entries by their names.
func byName(a, b entry) int { return strings.Compare(a.name, b.name) }

// finishFolder sorts the entries of a folder and gives them the folder's owner, its part of a snapshot, and an
// identity each.
func finishFolder(of entry, entries []entry) []entry {
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

// fieldFiles makes a file of each field of the object that find returns.
func fieldFiles[T any](fields []report.Field[T], find func(*snapshot) (T, bool)) []entry {
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

// folder makes the entry `of` a directory with a file for each field, of which some can be written, and the entries
// of more. The directory exists while there returns true; nil: while find finds its object.
func folder[T any](b *builder, of entry, there func(*snapshot) bool, find func(*snapshot) (T, bool), fields []report.Field[T], setting Setting, more func() []entry) entry {
	if there == nil {
		there = func(s *snapshot) bool { _, ok := find(s); return ok }
	}
	of.dir = &directory{list: func(s *snapshot) ([]entry, bool) {
		if !there(s) {
			return nil, false
		}
		entries := fieldFiles(fields, find)
		if more != nil {
			entries = append(entries, more()...)
		}
		return finishFolder(of, b.makeWritable(entries, setting)), true
	}}
	if of.pid != 0 {
		of.dir.pid = func(string) int { return of.pid }
	}
	return of
}

// makeWritable makes those entries writable that set a live limit of s.Of, or suspend that job.
func (b *builder) makeWritable(entries []entry, s Setting) []entry {
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

// maxCommand is the most bytes in one write to a file.
const maxCommand = 4096
