package gpufs

// This file has the nodes for directories, symbolic links and files, and the reads of an open file. tree.go has the
// entries from which nodes are made; control.go has the writes; eventsfile.go has the file events.

import (
	"context"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// modes returns the file type and the permission bits of an entry.
func (e *entry) modes() (kind, mode uint32) {
	switch {
	case e.dir != nil:
		return syscall.S_IFDIR, dirMode
	case e.link != nil:
		return syscall.S_IFLNK, linkMode
	case e.set != nil:
		return syscall.S_IFREG, writableMode
	}
	return syscall.S_IFREG, fileMode
}

// node makes the node of an entry and fills in its attributes.
func (st *state) node(e entry, out *fuse.Attr) (fs.InodeEmbedder, fs.StableAttr) {
	kind, mode := e.modes()
	id := fs.StableAttr{Mode: kind, Ino: e.id.ino(), Gen: e.id.gen()}
	shown := attributes{state: st, uid: e.uid, mode: mode}
	shown.fill(out)
	switch {
	case e.dir != nil:
		return &dirNode{attributes: shown, dir: e.dir}, id
	case e.link != nil:
		return &linkNode{attributes: shown, target: e.link}, id
	case e.log != nil:
		log := &logNode{attributes: shown, history: e.log}
		log.fill(out)
		return log, id
	}
	return &fileNode{attributes: shown, text: e.text, part: e.part, set: e.set}, id
}

// dirNode is a directory.
type dirNode struct {
	fs.Inode
	readOnly
	attributes
	dir *directory
}

var (
	_ fs.NodeGetattrer = (*dirNode)(nil)
	_ fs.NodeLookuper  = (*dirNode)(nil)
	_ fs.NodeReaddirer = (*dirNode)(nil)
)

// within returns the job of a cgroup to which the caller's view of the directory is limited; 0: the caller sees
// everything. All callers see the same names in a fixed directory.
func (n *dirNode) within(ctx context.Context) uint64 {
	if n.dir.fixed {
		return 0
	}
	return n.state.within(ctx)
}

// Lookup finds a name. The answer may come from a snapshot up to maxRecentAge old. If the name is missing there,
// Lookup searches a fresh snapshot.
func (n *dirNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	var e entry
	var ok bool
	switch job := n.within(ctx); {
	case n.dir.fixed:
		e, ok = n.dir.entry(nil, name)
	case n.dir.pid != nil && job == 0:
		e, ok = n.dir.entry(n.state.snapshots.freshOf(n.dir.pid(name)), name)
	default:
		if e, ok = n.dir.entry(n.state.snapshots.recent().limitedTo(job), name); !ok {
			e, ok = n.dir.entry(n.state.snapshots.fresh().limitedTo(job), name)
		}
	}
	if !ok {
		return nil, syscall.ENOENT
	}
	ops, id := n.state.node(e, &out.Attr)
	return n.NewInode(ctx, ops, id), 0
}

// Readdir lists the directory in the order of the tree. It uses a fresh snapshot, or a recent one if the names in the
// directory never change.
func (n *dirNode) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	take := n.state.snapshots.recent
	if n.dir.changing {
		take = n.state.snapshots.fresh
	}
	entries, ok := n.dir.list(take().limitedTo(n.within(ctx)))
	if !ok {
		return nil, syscall.ENOENT
	}
	list := make([]fuse.DirEntry, 0, len(entries))
	for _, e := range entries {
		kind, _ := e.modes()
		list = append(list, fuse.DirEntry{Name: e.name, Ino: e.id.ino(), Mode: kind})
	}
	return fs.NewListDirStream(list), 0
}

// linkNode is a symbolic link.
type linkNode struct {
	fs.Inode
	readOnly
	attributes
	target func(tid uint32) (string, bool)
}

var (
	_ fs.NodeGetattrer  = (*linkNode)(nil)
	_ fs.NodeReadlinker = (*linkNode)(nil)
	_ fs.NodeSetattrer  = (*linkNode)(nil)
)

// Readlink returns the link's target for the calling thread.
func (n *linkNode) Readlink(ctx context.Context) ([]byte, syscall.Errno) {
	caller, ok := fuse.FromContext(ctx)
	if !ok || caller.Pid == 0 {
		return nil, syscall.ENOENT // a thread in a foreign PID namespace has no number here
	}
	target, ok := n.target(caller.Pid)
	if !ok {
		return nil, syscall.ENOENT
	}
	return []byte(target), 0
}

// fileNode is a file with content from a snapshot.
type fileNode struct {
	fs.Inode
	attributes
	text func(*snapshot) ([]byte, bool)
	part                                                          // the part of a snapshot that the content needs
	set  func(ctx context.Context, value string, by opener) error // takes a written value; nil: the file is read-only
}

var (
	_ fs.NodeGetattrer = (*fileNode)(nil)
	_ fs.NodeSetattrer = (*fileNode)(nil)
	_ fs.NodeOpener    = (*fileNode)(nil)
	_ fs.NodeFsyncer   = (*fileNode)(nil)
	_ fs.FileReader    = (*handle)(nil)
)

// Setattr accepts only the truncation of a writable file. It refuses chmod, chown and touch.
func (n *fileNode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if n.set == nil || !truncates(in) {
		return syscall.EPERM
	}
	n.fill(&out.Attr)
	return 0
}

// Fsync does nothing, because a write is complete when it returns.
func (n *fileNode) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno { return 0 }

// Open refuses to open a read-only file for writing. The check is for root, whom the kernel lets past the permission
// bits.
func (n *fileNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	writes := flags&syscall.O_ACCMODE != syscall.O_RDONLY || flags&syscall.O_TRUNC != 0
	if writes && n.set == nil {
		return nil, 0, syscall.EACCES
	}
	caller, ok := fuse.FromContext(ctx)
	if !ok {
		return nil, 0, syscall.EACCES
	}
	h := &handle{file: n, by: opener{uid: caller.Uid, within: n.state.within(ctx)}}
	if n.state.Standing != nil { // the thread sleeps in its open(2), so that its number cannot be reused
		h.by.Standing = n.state.Standing(caller.Pid, caller.Uid)
	}
	if writes && n.state.SelfOf != nil {
		h.by.pid, _ = n.state.SelfOf(caller.Pid)
	}
	return h, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// handle is one open of a file.
type handle struct {
	file *fileNode
	by   opener

	mu      sync.Mutex // guards the fields below: several processes may share the descriptor
	content []byte     // replaced as a whole, never modified
	filled  bool
}

// Read takes a fresh snapshot for a read at offset 0. A read at another offset continues the last snapshot.
func (h *handle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	content, errno := h.at(off)
	if errno != 0 {
		return nil, errno
	}
	if off < 0 || off >= int64(len(content)) {
		return fuse.ReadResultData(nil), 0
	}
	n := copy(dest, content[off:])
	return fuse.ReadResultData(dest[:n]), 0
}

// at returns the whole content for a read at offset off.
func (h *handle) at(off int64) ([]byte, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if off == 0 || !h.filled {
		text, ok := h.file.text(h.file.state.snapshotFor(h.by, h.file.part))
		if !ok {
			return nil, syscall.ENODEV // the process or job has ended; cgroupfs has this error too
		}
		h.content, h.filled = text, true
	}
	return h.content, 0
}

// truncates reports whether a change of attributes only empties the file, as the shell does for `echo 2 > FILE`.
func truncates(in *fuse.SetAttrIn) bool {
	size, ok := in.GetSize()
	_, mode := in.GetMode()
	_, uid := in.GetUID()
	_, gid := in.GetGID()
	return ok && size == 0 && !mode && !uid && !gid
}
