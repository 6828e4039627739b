package gpufs

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gpuarb/gpuarb/internal/events"
)

// The file events: unlike the others it has a size, which only grows, and what it holds at an offset never changes,
// except that it may be dropped. So it can be read like a log file: to its end, and on from there whenever it has grown.

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

// Fsync has nothing to do.
func (n *logNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Open refuses whoever wants to write.
func (n *logNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0 {
		return nil, 0, syscall.EACCES
	}
	return &logHandle{history: n.history}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// logHandle is one open of the file. A sequential read, from the beginning or on from where the last one ended, skips gaps:
// it gets a line that says so in the place of each, and from there on the handle's offsets are smaller than the history's. A read
// at any other offset, as tail does to find the last lines, uses the history's offsets, and gets blanks in a gap.
type logHandle struct {
	history History

	mu      sync.Mutex // orders the reads of processes that share the descriptor
	shift   int64      // the history's offset less the handle's
	marker  []byte     // the last line that said so,
	at      int64      // and its offset for the handle
	reached int64      // where the last read ended
}

// Read reads up to the current end; at the end it returns nothing.
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
