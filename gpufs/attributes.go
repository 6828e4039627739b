package gpufs

// This file has what all nodes of a mount share, and what stat shows of a node. node.go and history.go have the nodes.

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	fileMode = 0o444
	knobMode = 0o644
	dirMode  = 0o555
	linkMode = 0o777
)

// state is shared by all nodes of a mount, and does not change.
type state struct {
	Options
	snapshots *snapshots
	gid       uint32
	mounted   time.Time // what every file's times say
}

// shownTo is a part of a fresh snapshot as a user may see it.
func (st *state) shownTo(uid uint32, of part) *snapshot {
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

// attributes are the figures that stat shows of a node.
type attributes struct {
	state *state
	uid   uint32
	mode  uint32
}

// show fills them in. Sizes are 0, as on cgroupfs: what a file holds is
// known only when it is read.
func (a *attributes) show(out *fuse.Attr) {
	out.Mode = a.mode
	out.Owner = fuse.Owner{Uid: a.uid, Gid: a.state.gid}
	out.Nlink = 1
	out.SetTimes(&a.state.mounted, &a.state.mounted, &a.state.mounted)
}

// Getattr does not check that the thing behind the node is still there: a path leads through
// Lookup, and an open directory may be looked at for as long as it is open.
func (a *attributes) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	a.show(&out.Attr)
	return 0
}
