package gpufs

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/figures"
)

// Control changes limits while programs run. Set must be safe for concurrent use; where it has the
// writer wait, that ends with the context, which a signal to the writer ends. Its error tells the
// writer what was wrong: the syscall.Errno that it wraps, EIO without one.
type Control interface {
	Set(context.Context, Setting) error
}

// Setting is a limit as somebody wrote it.
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

// opener is who opened a file: who was let in decides, not who got the descriptor.
type opener struct {
	uid uint32
	pid int // where he opened it to write; 0: not known
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

var _ fs.FileWriter = (*handle)(nil)

// Write takes one whole command, wherever in the file it is written, as cgroupfs does.
func (h *handle) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	value := strings.TrimSpace(string(data))
	switch {
	case h.file.set == nil:
		return 0, syscall.EBADF // opened for reading: the kernel does not let this through
	case len(data) > maxCommand:
		return 0, syscall.E2BIG
	case value == "":
		return 0, syscall.EINVAL
	}
	if err := h.file.set(ctx, value, h.by); err != nil {
		return 0, toErrno(err)
	}
	return uint32(len(data)), 0
}

// toErrno is what the writer is told of an error.
func toErrno(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}

// truncates tells a wish to empty the file, which `echo 2 > FILE` begins with, from
// every other change of its attributes.
func truncates(in *fuse.SetAttrIn) bool {
	size, ok := in.GetSize()
	_, mode := in.GetMode()
	_, uid := in.GetUID()
	_, gid := in.GetGID()
	return ok && size == 0 && !mode && !uid && !gid
}
