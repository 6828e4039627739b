package gpufs

// This file has the file events. Unlike the other files it has a size, which only grows. The content at an offset
// never changes; it may only be dropped. Programs can therefore read it like a log file: to its end, and later from
// there on. The daemon implements History, see options.go.

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gpuarb/gpuarb/internal/events"
)

// logNode is the node of the file.
type logNode struct {
	fs.Inode
	readOnly
	attributes
	history History
}

var (
	_ fs.NodeGetattrer = (*logNode)(nil)
	_ fs.NodeSetattrer = (*logNode)(nil)
	_ fs.NodeOpener    = (*logNode)(nil)
	_ fs.NodeFsyncer   = (*logNode)(nil)
	_ fs.FileReader    = (*logHandle)(nil)
)

// fill writes the attributes. It sets a number of blocks, because cp would take a file without blocks for a sparse
// file.
func (n *logNode) fill(out *fuse.Attr) {
	n.attributes.fill(out)
	size, last := n.history.Size()
	out.Size, out.Blocks = uint64(size), uint64(size+511)/512
	if !last.IsZero() {
		out.SetTimes(nil, &last, &last)
	}
}

// Getattr returns the present size.
func (n *logNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fill(&out.Attr)
	return 0
}

// Fsync does nothing, because a read-only file has nothing to write.
func (n *logNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Open refuses to open the file for writing. It also refuses processes that must not see all jobs, because the file has the
// events of all jobs.
func (n *logNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0 || n.state.within(ctx) != 0 {
		return nil, 0, syscall.EACCES
	}
	return &logHandle{history: n.history}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// logHandle is one open of the file.
//
// A sequential read starts at 0 or where the last read ended. It gets a line in place of each gap that reports the
// lost bytes. After that line the handle's offsets are smaller than the history's. A read at another offset, such as
// tail's search for the last lines, uses the history's offsets and gets spaces in a gap.
type logHandle struct {
	history History

	mu      sync.Mutex // guards the fields below: several processes may share the descriptor
	shift   int64      // history offset minus handle offset
	marker  []byte     // the last line that reported a gap
	at      int64      // offset of marker, in the handle's offsets
	reached int64      // end of the last read, in the handle's offsets
}

// Read reads up to the present end of the history. At the end it returns no bytes.
func (h *logHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	onward := off == h.reached || off == 0
	if off == 0 {
		h.shift, h.marker = 0, nil
	}
	n := 0
	for n < len(dest) {
		got := h.read(dest[n:], off+int64(n), onward)
		if got == 0 {
			break
		}
		n += got
	}
	h.reached = off + int64(n)
	return fuse.ReadResultData(dest[:n]), 0
}

// read copies one piece from an offset of the handle, and returns its length; 0: the end.
func (h *logHandle) read(dst []byte, off int64, onward bool) int {
	if i := off - h.at; i >= 0 && i < int64(len(h.marker)) {
		return copy(dst, h.marker[i:])
	}
	n, next := h.history.ReadAt(dst, off+h.shift)
	gap := next - (off + h.shift)
	switch {
	case n > 0 || gap <= 0:
		return n
	case onward:
		h.marker, h.at = events.LostLine(time.Now(), gap), off
		h.shift += gap - int64(len(h.marker))
		return copy(dst, h.marker)
	}
	n = int(min(int64(len(dst)), gap))
	for i := range n {
		dst[i] = ' '
	}
	return n
}
