package gpufs

// This file has the state that all nodes of a mount share, and the attributes that stat(2) shows. node.go and
// eventsfile.go have the nodes.

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Permission bits of each kind of node.
const (
	fileMode     = 0o444
	writableMode = 0o644
	dirMode      = 0o555
	linkMode     = 0o777
)

// state is shared by all nodes of a mount. Its fields do not change; snapshots has its own lock.
type state struct {
	Options
	snapshots *snapshots
	gid       uint32
	mounted   time.Time // shown as every file's times, except for the file events
}

// snapshotFor takes a fresh snapshot of one part of the state, for the eyes of one user: without other users' command
// lines if Options.Hides asks for that.
func (st *state) snapshotFor(uid uint32, of part) *snapshot {
	var s *snapshot
	switch {
	case of.pid != 0:
		s = st.snapshots.freshOf(of.pid)
	case of.leases:
		s = st.snapshots.freshLeases()
	default:
		s = st.snapshots.fresh()
	}
	if st.Hides == nil || !st.Hides(uid) {
		return s
	}
	return &snapshot{s.WithOwnCommands(uid)}
}

// attributes are the figures that stat(2) shows of a node.
type attributes struct {
	state *state
	uid   uint32
	mode  uint32
}

// fill writes the attributes into out. Sizes are 0, as on cgroupfs, because the length of a file's content is known
// only when the file is read.
func (a *attributes) fill(out *fuse.Attr) {
	out.Mode = a.mode
	out.Owner = fuse.Owner{Uid: a.uid, Gid: a.state.gid}
	out.Nlink = 1
	out.SetTimes(&a.state.mounted, &a.state.mounted, &a.state.mounted)
}

// Getattr returns the attributes without checking that the process or job behind the node still exists. Lookup checks
// that for each path, and an open directory stays usable while it is open.
func (a *attributes) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	a.fill(&out.Attr)
	return 0
}
