package gpufs

// This file makes the kernel forget names of ended processes and jobs. mount.go starts it.

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
)

// sweepEvery bounds the time for which the names of ended processes and jobs stay in memory.
const sweepEvery = 30 * time.Second

// sweep makes the kernel forget the names of ended processes and jobs. Otherwise the kernel keeps the names, and the
// library their nodes, until memory is short, which on a large machine never happens. sweep runs in its own goroutine
// and holds no lock.
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

// sweepOnce sweeps all folders below the root once, and returns the number of forgotten names.
func (s *Server) sweepOnce() int {
	gone := 0
	for _, top := range s.root.Children() {
		gone += s.sweepDir(top)
	}
	return gone
}

// sweepDir forgets the children of dir that no longer exist or that a name's reuse has replaced.
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
		// The kernel drops the name and everything below it, and confirms that with FORGET messages. An error means
		// that the kernel does not have the name.
		if errno := dir.NotifyEntry(name); errno == 0 {
			gone++
		}
	}
	return gone
}
