package gpufs

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gpuarb/gpuarb/events"
)

// The file events: unlike the others it has a size, which only grows, and what it holds at an offset never changes,
// until it is gone. So it is read like a log file: to its end, or on from there whenever it has grown.

// History is lines at offsets in bytes. Its methods must be safe for concurrent use and work from memory.
type History interface {
	// Size is the offset behind the last line, and when that came; zero: none did.
	Size() (size int64, last time.Time)
	// ReadAt copies what is there from an offset on, up to the first gap. Where nothing is there at the offset itself, n is 0, and
	// next is where something is again: the size, where that is all.
	ReadAt(dst []byte, offset int64) (n int, next int64)
}

// logNode is the file.
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

// show is what stat shows. With no blocks, cp would take it for a file of holes.
func (n *logNode) show(out *fuse.Attr) {
	n.attributes.show(out)
	size, last := n.history.Size()
	out.Size, out.Blocks = uint64(size), uint64(size+511)/512
	if !last.IsZero() {
		out.SetTimes(nil, &last, &last)
	}
}

// Getattr tells how long the file is by now.
func (n *logNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.show(&out.Attr)
	return 0
}

// Setattr refuses every change.
func (n *logNode) Setattr(context.Context, fs.FileHandle, *fuse.SetAttrIn, *fuse.AttrOut) syscall.Errno {
	return syscall.EPERM
}

// Fsync has nothing to do.
func (n *logNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Open refuses whoever wants to write.
func (n *logNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0 {
		return nil, 0, syscall.EACCES
	}
	return &logHandle{history: n.history}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// logHandle is one open of the file. Who reads it from the beginning, or on from where he was, is led over what is
// gone: a line that says so comes in its place, and from there on his offsets are behind those of the history. Who reads
// elsewhere, as tail does to find the last lines, has the history's own, and blanks where something is gone.
type logHandle struct {
	history History

	mu      sync.Mutex // orders the reads of those who share the descriptor
	shift   int64      // an offset of the history, less that of the handle
	marker  []byte     // the last line of that kind,
	at      int64      // and where it is for the handle
	reached int64      // where the last read ended
}

// Read reads on to the end; there it returns nothing, and later what has come.
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

// read copies one piece, from an offset of the handle; 0: there is no more.
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
