package gpufs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
)

// sweepEvery is how long the names of what has gone may stay in memory.
const sweepEvery = 30 * time.Second

// sweep makes the kernel forget the names of processes and jobs that have gone. It
// would keep them, and the library their nodes, until it is short of memory, which
// on a large machine is never. It runs beside the handlers, with no lock held.
func (s *Server) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
			s.sweepOnce()
		}
	}
}

// sweepOnce returns how many names it let go.
func (s *Server) sweepOnce() int {
	gone := 0
	for _, top := range s.root.Children() {
		gone += s.sweepDir(top)
	}
	return gone
}

func (s *Server) sweepDir(dir *fs.Inode) int {
	node, ok := dir.Operations().(*dirNode)
	if !ok {
		return 0
	}
	children := dir.Children()
	if len(children) == 0 {
		return 0
	}
	there := map[string]identity{}
	entries, _ := node.dir.list(s.state.snapshots.recent())
	for _, e := range entries {
		there[e.name] = e.id
	}
	gone := 0
	for name, child := range children {
		id := child.StableAttr()
		if is, ok := there[name]; ok && is.ino() == id.Ino && is.gen() == id.Gen {
			continue
		}
		// The kernel drops the name and all below it, and says so by FORGET. An
		// error means that it does not have the name, or not any more.
		if errno := dir.NotifyEntry(name); errno == 0 {
			gone++
		}
	}
	return gone
}
