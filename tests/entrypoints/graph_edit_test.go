package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what is charged when an executable graph is updated, copied, or launched beside the capture
// of another stream. graph_test.go has graphs that do not change.

const (
	errNotSupported = "err 801"
	errUpdateFailed = "err 910"
)

// one makes a graph with one allocation.
func one(p *rig.Program, graph, address string, bytes uint64, frees bool) {
	p.Want("graph "+graph, "ok")
	p.Want(fmt.Sprintf("graphalloc %s %s %d", address, graph, bytes), "ok")
	if frees {
		p.Want(fmt.Sprintf("graphfree %s %s", address, graph), "ok")
	}
}

// TestGraphsAreUpdated: an update replaces the memory of an executable graph by another graph's. The next launch is charged
// for it, or refused.
func TestGraphsAreUpdated(t *testing.T) {
	const limit, small, large = 8<<20 + 3, 1000001, 5000003
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		for _, update := range []string{"graphupdate", "graphupdatev1"} {
			one(p, "graph", "a", small, true)
			one(p, "other", "b", large, true)
			p.Want("instantiate x graph", "ok")
			p.Want("launch x s", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 0, small)
			// An update that fails changes nothing.
			m.Sim("fail", "cuGraphExecUpdate*:1:999")
			p.Want(update+" x other", "err 999")
			m.Sim("clear")
			p.Want("graph none", "ok")
			p.Want(update+" x none", errUpdateFailed)
			p.Want(fmt.Sprintf("alloc most %d", limit-small), "ok")
			p.Want("launch x s", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, limit-small, small)
			p.Want("free most", "ok")

			p.Want(fmt.Sprintf("alloc most %d", limit-large+1), "ok")
			p.Want(update+" x other", "ok")
			m.CountCalls("cuGraphLaunch*")
			p.Want("launch x s", errOutOfMemory)
			if n := m.Calls("cuGraphLaunch*"); n != 0 {
				t.Errorf("%s: the driver was asked %d times for what was refused", update, n)
			}
			m.Sim("clear")
			p.Want("upload x s", errOutOfMemory)
			p.Want("free most", "ok")
			p.Want(fmt.Sprintf("alloc most %d", limit-large), "ok")
			p.Want("launch x s", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, limit-large, large)
			p.Want("free most", "ok")
			// Update it back while the first launch is running.
			p.Want("gate s", "ok")
			p.Want("launch x s", "ok")
			p.Want(update+" x graph", "ok")
			p.Want("launch x s", "ok")
			keeps(t, m, pid, large+small, 0)
			p.Want("open", "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 0, large+small)
			for _, destroy := range []string{"execdestroy x", "graphdestroy graph", "graphdestroy other", "graphdestroy none"} {
				p.Want(destroy, "ok")
			}
			p.Want("graphtrim 0", "ok")
			keeps(t, m, pid, 0, 0)
		}
		exactly(p, limit)
	})
}

// TestUpdatesLeaveBlocks: blocks that the graph allocated before the update stay until they are freed.
func TestUpdatesLeaveBlocks(t *testing.T) {
	const limit, small, large = 8 << 20, 1000001, 5000003
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		one(p, "graph", "a", small, false)
		one(p, "other", "b", large, false)
		p.Want("instantiate x graph", "ok")
		p.Want("launch x s", "ok")
		p.Want("graphupdate x other", "ok")
		p.Want("launch x s", "ok")
		keeps(t, m, pid, small+large, 0)
		exactly(p, limit-small-large)
		p.Want("launch x s", errInvalidValue) // block b still exists
		p.Want("free b", "ok")
		p.Want("launch x s", "ok")
		p.Want("graphupdate x graph", "ok")
		p.Want("launch x s", errInvalidValue) // block a still exists
		p.Want("freeasync a s", "ok")
		p.Want("launch x s", "ok")
		p.Want("syncall", "ok")
		keeps(t, m, pid, small+large, 0)
		p.Want("free a", "ok")
		p.Want("free b", "ok")
		// Update a graph whose child no longer allocates.
		p.Want("graph empty", "ok")
		p.Want("graph plain", "ok")
		p.Want("graphchild n plain empty", "ok")
		p.Want("instantiate y plain", "ok")
		p.Want("graphupdate y plain", "ok")
		p.Want("launch y s", "ok")
		p.Want("graphtrim 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestGraphsAreCopied: no copy of a graph has memory that is not charged. The driver refuses to copy
// a graph with memory, and a graph without memory takes none.
func TestGraphsAreCopied(t *testing.T) {
	const limit, bytes = 8 << 20, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream c", "ok")
		one(p, "graph", "a", bytes, false)
		p.Want("graphclone b graph", errNotSupported)
		p.Want("graph outer", "ok")
		p.Want("graphchild n outer graph", errNotSupported)
		p.Want("instantiate x graph", "ok")
		p.Want("graphmove n outer graph", errNotSupported) // the graph is executable
		p.Want("launch x s", "ok")
		keeps(t, m, pid, bytes, 0)
		// A launch of such a graph cannot be captured either: it breaks the capture.
		p.Want("capture c", "ok")
		p.Want("launch x c", "err 900")
		p.Want("launchptsz x c", "err 901")
		p.Want("capturing c", "ok 2")
		p.Want("endcapture c captured", "err 901")
		p.Want("graph captured", "ok")
		keeps(t, m, pid, bytes, 0)
		exactly(p, limit-bytes)
		// Graphs without memory can be copied and captured, and are not charged.
		p.Want("instantiate y captured", "ok")
		p.Want("capture c", "ok")
		p.Want("launch y c", "ok")
		p.Want("endcapture c again", "ok")
		p.Want("graphclone b again", "ok")
		p.Want("graphchild n outer b", "ok")
		p.Want("graphif body outer 1", "ok")
		p.Want("captureto c body", "ok")
		p.Want(fmt.Sprintf("allocasync b %d c", bytes), errInvalidValue)
		p.Want("capturing c", "ok 1")
		p.Want("endcapture c again", "ok")
		p.Want("instantiate z outer", "ok")
		p.Want("upload z s", "ok")
		p.Want("launch z s", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, bytes, 0)
		p.Want("free a", "ok")
		p.Want("graphtrim 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestGraphsBesideACapture: while one stream is captured, graphs on other streams are launched, refused, freed and trimmed
// for. The capture stays valid.
func TestGraphsBesideACapture(t *testing.T) {
	const limit, bytes = 8 << 20, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream c", "ok")
		one(p, "first", "a", bytes, true)
		one(p, "second", "b", limit, false)
		p.Want("instantiate x first", "ok")
		p.Want("instantiate y second", "ok")
		p.Want("launch x s", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, 0, bytes)
		for mode := range 3 {
			p.Want(fmt.Sprintf("capture c %d", mode), "ok")
			p.Want("allocasync d 1000 c", "ok")
			p.Want("allocasync e 1000 s", "ok")
			p.Want("launch y s", errOutOfMemory)
			p.Want("freeasync e s", "ok")
			p.Want("launch y s", "ok") // the whole budget, after the pools have released their memory
			p.Want("launch x s", errOutOfMemory)
			keeps(t, m, pid, limit, 0)
			p.Want("freeasync b s", "ok")
			p.Want("graphupdate x first", "ok")
			p.Want("freeasync d c", "ok")
			p.Want("capturing c", "ok 1")
			p.Want("endcapture c captured", "ok")
			p.Want("instantiate z captured", "ok")
			p.Want("launch z s", "ok")
			p.Want("sync s", "ok")
			p.Want("execdestroy z", "ok")
			p.Want("graphdestroy captured", "ok")
		}
		exactly(p, limit)
	})
}
