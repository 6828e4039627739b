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

// within returns the job of a cgroup to which the view of the process that made a request is limited; 0: the process
// sees all jobs.
func (st *state) within(ctx context.Context) uint64 {
	caller, ok := fuse.FromContext(ctx)
	if !ok || st.Within == nil {
		return 0
	}
	return st.Within(caller.Pid, caller.Uid)
}

// snapshotFor takes a fresh snapshot of one part of the state for one opener. It leaves out the jobs that the opener
// must not see. If Options.Hides returns true for the opener's user, it also leaves out other users' command lines.
func (st *state) snapshotFor(by opener, of part) *snapshot {
	var s *snapshot
	switch {
	case by.within != 0:
		s = st.snapshots.fresh().limitedTo(by.within)
	case of.pid != 0:
		s = st.snapshots.freshOf(of.pid)
	case of.leases:
		s = st.snapshots.freshLeases()
	default:
		s = st.snapshots.fresh()
	}
	if uid := by.reader(); st.Hides != nil && st.Hides(uid) {
		return &snapshot{s.WithOwnCommands(uid)}
	}
	return s
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
