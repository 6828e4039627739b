package gpufs

// This file has the interface between a mount and the daemon: the mount's options, the writes to files, and the
// event history. mount.go takes the options; package daemon implements the interfaces.

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// Options configures a mount.
type Options struct {
	// System admits all users of the machine (allow_other); it requires root. Without it only the daemon's own user
	// has access: FUSE refuses even root.
	System bool
	// Mounted is a descriptor of [MakeMount] in another process, which has mounted already; nil: Mount mounts. Mount closes it.
	Mounted *os.File
	// SelfOf returns the process of a calling thread, for the link named self; nil: no such link. FUSE gives only the
	// thread's number, which the daemon may never have seen. SelfOf may therefore read that thread's status in /proc,
	// which is the kernel's own memory, so that no process can delay it.
	SelfOf func(tid uint32) (pid int, ok bool)
	// Standing returns the rights of a thread that opens a file. It may read the thread's files in /proc, like
	// SelfOf. nil: no opener is privileged.
	Standing func(tid, uid uint32) Standing
	// Control receives the writes to files; nil: all files are read-only.
	Control Control
	// Hides reports whether a user must not see other users' command lines; nil: all users see all of them.
	Hides func(uid uint32) bool
	// Within returns the job of a cgroup to which the view of a calling thread is limited; 0: it sees all jobs. nil: all callers
	// see all jobs. It may read the thread's files in /proc, like SelfOf.
	Within func(tid, uid uint32) uint64
	// Metrics writes the content of the file metrics from a snapshot; nil: no such file. It may read the daemon's own
	// process in /proc, which no other process can delay.
	Metrics func(io.Writer, figures.Snapshot) error
	// History has the content of the file events; nil: no such file.
	History History
	// Logger receives errors of the serving goroutines; nil: they are dropped.
	Logger *slog.Logger
}

// Control changes limits of running programs, and suspends and resumes jobs. Set must be safe for concurrent use. If Set waits, it must stop at the
// end of the context, which a signal to the writer ends. The writer gets the syscall.Errno that the returned error
// wraps, or EIO.
type Control interface {
	Set(context.Context, Setting) error
}

// Freeze is the name of the file of a job that suspends the job if 1 is written into it, and resumes it with 0.
const Freeze = report.Freeze

// Setting is a limit, or the value of Freeze, in the form in which a user wrote it.
type Setting struct {
	Of       rules.Owner // the owner of the limit, or the job
	UserName string      // name of the user that the limit applies to; "": the limit is not a user's
	Device   int         // index; rules.AllDevices: every device
	Name     string      // the file's name: memory.max, slots.max, …
	Value    string      // the written text without white space around it; never empty
	UID      uint32      // user of the process that opened the file
	By       int         // PID of the process that opened the file; 0: unknown
	Standing
}

// Standing has the rights of a process, by its user and its namespaces.
type Standing struct {
	Privileged bool   // has all rights
	Namespace  uint64 // PID namespace of a process of root or of the daemon's user, which without privilege owns only what was opened there; 0: any other user
}

// opener is the process that opened a file. Its rights decide about a write, even if another process writes through
// an inherited descriptor.
type opener struct {
	uid uint32
	pid int // set if the file was opened for writing; 0: unknown
	// within is the job of a cgroup to which the opener's view is limited; 0: it sees all jobs.
	within uint64
	Standing
}

// reader returns the user whose command lines the opener may see, if users see only their own. An administrator
// without privilege, such as root in a container, sees none, because root's programs on the machine are not its own.
func (o opener) reader() uint32 {
	if !o.Privileged && o.Namespace != 0 {
		return figures.Stranger
	}
	return o.uid
}

// writable reports whether a file sets a live limit, or suspends a job. streams.max applies to each lease of a process,
// so that only the process's file sets it, for all leases together.
func (s *Setting) writable(name string) bool {
	if name == Freeze {
		return s.Of.Kind == rules.OfJob
	}
	file := rules.FileNamed(name)
	return s.Of.Has(file) && (file != rules.StreamsMax || s.Device == rules.AllDevices)
}

// History is the event history: lines at offsets in bytes. The daemon implements it. Its methods must be safe for
// concurrent use and must answer from memory.
type History interface {
	// Size returns the offset after the last line, and the time of that line; zero: there is no line yet.
	Size() (size int64, last time.Time)
	// ReadAt copies bytes from an offset up to the first gap. If the offset itself lies in a gap, n is 0 and next is
	// the end of the gap: the next kept byte, or the size if no bytes follow.
	ReadAt(dst []byte, offset int64) (n int, next int64)
}
