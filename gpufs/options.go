package gpufs

// This file says what a mount needs of its daemon: its options, who may write limits, and the event history. mount.go takes them.

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// Options says how to mount.
type Options struct {
	// System lets every user of the machine in (allow_other). It needs root.
	// Without it the daemon's own user alone gets in; FUSE keeps root out as well.
	System bool
	// SelfOf maps the thread that asks to its process, for the link named self; nil
	// leaves the link out. FUSE names the thread, and no table in memory can know a
	// thread that was never seen, so this function may read that thread's status in
	// /proc: the kernel's own memory, of which no process can hold up the reading.
	// It is the one exception to the rule that handlers work from memory alone.
	SelfOf func(tid uint32) (pid int, ok bool)
	// Standing returns the rights of a thread that opens a file. It may read the thread's files in /proc, as SelfOf may.
	// Nil: no opener is privileged.
	Standing func(tid, uid uint32) Standing
	// Control takes what is written to the limits. Nil: no file can be written.
	Control Control
	// Hides says whether a user may see no command lines but those of his own programs. Nil: all users see all.
	Hides func(uid uint32) bool
	// Metrics writes the file metrics from a snapshot; nil leaves the file out. It may look at the
	// daemon's own process in /proc, which no other process can hold up.
	Metrics func(io.Writer, figures.Snapshot) error
	// History has the lines of the file events. Nil: there is no such file.
	History History
	// Logger takes what goes wrong while serving. Nil: nothing is logged.
	Logger *slog.Logger
}

// Control changes limits while programs run. Set must be safe for concurrent use; where it has the
// writer wait, that ends with the context, which a signal to the writer ends. Its error tells the
// writer what was wrong: the syscall.Errno that it wraps, EIO without one.
type Control interface {
	Set(context.Context, Setting) error
}

// Setting is a limit as a user wrote it.
type Setting struct {
	Of       rules.Owner // whose limit it is
	UserName string      // of the user whose limit it is; "": the limit has no user
	Device   int         // index; rules.AllDevices: every device
	Name     string      // the file's: memory.max, slots.max, …
	Value    string      // without white space around it; never empty
	UID      uint32      // who opened the file,
	By       int         // by which process; 0: not known
	Standing
}

// Standing says which rights a process has by its user number and its namespaces.
type Standing struct {
	Privileged bool   // it may do anything
	Namespace  uint64 // PID namespace of a process of root's or of the daemon's user: without privilege it owns only what was opened there; 0: any other user
}

// opener is the process that opened a file: its rights decide, not those of a process that was given the descriptor.
type opener struct {
	uid uint32
	pid int // if the file was opened to write; 0: not known
	Standing
}

// reader returns the user whose command lines the opener is shown if users see only those of their own programs. An admin
// that is not privileged, as root in a container, is shown none: root's programs are not its own.
func (o opener) reader() uint32 {
	if !o.Privileged && o.Namespace != 0 {
		return figures.Stranger
	}
	return o.uid
}

// writable reports whether a file sets a live limit: streams.max holds for each lease of a process, and is changed for all of them.
func (s *Setting) writable(name string) bool {
	file := rules.FileNamed(name)
	return s.Of.Has(file) && (file != rules.StreamsMax || s.Device == rules.AllDevices)
}

// History is the event history: lines at offsets in bytes. The daemon implements it. Its methods must be safe for concurrent
// use and answer from memory.
type History interface {
	// Size is the offset after the last line, and when that was added; zero: there was none yet.
	Size() (size int64, last time.Time)
	// ReadAt copies what is there from an offset on, up to the first gap. Where nothing is there at the offset itself, n is 0, and
	// next is where something is again: the size, where that is all.
	ReadAt(dst []byte, offset int64) (n int, next int64)
}
