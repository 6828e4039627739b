package entrypoints

import (
	"fmt"
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that the memory of a graph is charged at its launch or upload, and stays charged in the
// device's graph pool until the pool is trimmed. graph_edit_test.go has updates and copies of graphs.

// graphs are the ways to build a graph, named "graph", that allocates memory at a, and optionally
// frees it.
var graphs = []struct {
	name string
	make func(p *rig.Program, bytes uint64, frees bool)
}{
	{"captured", func(p *rig.Program, bytes uint64, frees bool) {
		p.Want("capture c", "ok")
		p.Want(fmt.Sprintf("allocasync a %d c", bytes), "ok")
		if frees {
			p.Want("freeasync a c", "ok")
		}
		p.Want("endcapture c graph", "ok")
	}},
	{"added", func(p *rig.Program, bytes uint64, frees bool) {
		p.Want("graph graph", "ok")
		p.Want(fmt.Sprintf("graphalloc a graph %d", bytes), "ok")
		if frees {
			p.Want("graphfree a graph", "ok")
		}
	}},
	{"added by type", func(p *rig.Program, bytes uint64, frees bool) {
		p.Want("graph graph", "ok")
		p.Want(fmt.Sprintf("graphnode a graph %d", bytes), "ok")
		if frees {
			p.Want("graphfree a graph", "ok")
		}
	}},
	{"in a child", func(p *rig.Program, bytes uint64, frees bool) {
		p.Want("graph inner", "ok")
		p.Want(fmt.Sprintf("graphnodev2 a inner %d", bytes), "ok")
		if frees {
			p.Want("graphfree a inner", "ok")
		}
		p.Want("graph graph", "ok")
		p.Want("graphmove n graph inner", "ok")
	}},
	{"captured, in a child of a child", func(p *rig.Program, bytes uint64, frees bool) {
		p.Want("graph inner", "ok")
		p.Want("captureto c inner", "ok")
		p.Want(fmt.Sprintf("allocptsz a %d c", bytes), "ok")
		p.Want("endcapture c again", "ok")
		if frees {
			p.Want("capturetoptsz c inner", "ok")
			p.Want("freeptsz a c", "ok")
			p.Want("endcapture c again", "ok")
		}
		p.Want("graph middle", "ok")
		p.Want("graphmovev2 n middle inner", "ok")
		p.Want("graph graph", "ok")
		p.Want("graphmove n graph middle", "ok")
	}},
}

// instantiations are the ways to make a graph executable. launches are the ways to launch it: the commands
// to upload and launch it, the driver's function that the launch calls, and the stream in which the graph
// then runs ("2": the thread's default stream).
var (
	instantiations = []string{"instantiate x graph", "instantiatev1 x graph", "instantiatev2 x graph", "instantiatewith x graph 0 s", "withptsz x graph 0 s"}
	launches       = []struct{ upload, launch, symbol, stream string }{
		{"upload x s", "launch x s", "cuGraphLaunch", "s"},
		{"upload x 0", "launch x 0", "cuGraphLaunch", "0"},
		{"uploadptsz x s", "launchptsz x s", "cuGraphLaunch_ptsz", "s"},
		{"uploadptsz x 0", "launchptsz x 0", "cuGraphLaunch_ptsz", "2"},
	}
)

func dropGraph(p *rig.Program) {
	p.Want("execdestroy x", "ok")
	p.Want("execdestroy x", errInvalidValue)
	p.Want("graphdestroy graph", "ok")
}

// TestGraphsAreCharged: nothing is charged before the first launch, which is charged for all memory or refused.
// Memory that the graph frees stays in its pool until the pool is trimmed.
func TestGraphsAreCharged(t *testing.T) {
	const limit, bytes = 8<<20 + 3, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream c", "ok")
		for _, g := range graphs {
			for i, instantiate := range instantiations {
				l := launches[i%len(launches)]
				g.make(p, bytes, true)
				p.Want(instantiate, "ok")
				exactly(p, limit)
				keeps(t, m, pid, 0, 0)
				// With one byte too few, the launch is refused without a call of the driver.
				p.Want(fmt.Sprintf("alloc most %d", limit-bytes+1), "ok")
				m.CountCalls("cuGraphLaunch*")
				p.Want(l.launch, errOutOfMemory)
				if n := m.Calls("cuGraphLaunch*"); n != 0 {
					t.Errorf("%s: the driver was asked %d times for what was refused", l.launch, n)
				}
				m.Sim("clear")
				p.Want("free most", "ok")
				p.Want(fmt.Sprintf("alloc most %d", limit-bytes), "ok")
				p.Want("gate "+l.stream, "ok")
				for range 3 { // each launch uses the same memory again
					p.Want(l.launch, "ok")
					keeps(t, m, pid, limit, 0)
				}
				p.Want("open", "ok")
				p.Want("sync "+l.stream, "ok")
				keeps(t, m, pid, limit-bytes, bytes)
				p.Want("free most", "ok")
				p.Want(l.launch, "ok")
				p.Want("syncall", "ok")
				keeps(t, m, pid, 0, bytes)
				dropGraph(p)
				keeps(t, m, pid, 0, bytes)
				p.Want("graphtrim 0", "ok")
				keeps(t, m, pid, 0, 0)
			}
		}
		exactly(p, limit)
	})
}

// TestGraphsLeaveBlocks: a block that outlives the launch of its graph is charged and freed like any other block.
func TestGraphsLeaveBlocks(t *testing.T) {
	const limit, bytes = 8 << 20, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream c", "ok")
		for _, g := range graphs {
			for _, free := range []string{"free a", "freeasync a s", "freeptsz a s", "freeasync a 0"} {
				g.make(p, bytes, false)
				p.Want("instantiate x graph", "ok")
				p.Want("launch x s", "ok")
				keeps(t, m, pid, bytes, 0)
				p.Want("launch x s", errInvalidValue) // the block still exists
				keeps(t, m, pid, bytes, 0)
				exactly(p, limit-bytes)
				p.Want(free, "ok")
				p.Want("launch x s", "ok") // the launch frees the block first if needed, and uses the same memory
				keeps(t, m, pid, bytes, 0)
				dropGraph(p) // the block outlives the graph
				p.Want("syncall", "ok")
				keeps(t, m, pid, bytes, 0)
				p.Want(free, "ok")
				p.Want(free, errInvalidValue)
				p.Want("syncall", "ok")
				keeps(t, m, pid, 0, bytes)
				exactly(p, limit) // the pool is trimmed under pressure
				keeps(t, m, pid, 0, 0)
			}
		}
		// Another graph frees the block; the free is pending while that graph runs.
		graphs[1].make(p, bytes, false)
		p.Want("instantiate x graph", "ok")
		p.Want("launch x s", "ok")
		p.Want("graph other", "ok")
		p.Want("graphfree a other", "ok")
		p.Want("instantiate y other", "ok")
		p.Want("gate s", "ok")
		p.Want("launch y s", "ok")
		keeps(t, m, pid, bytes, 0)
		p.Want("open", "ok")
		p.Want("sync s", "ok")
		keeps(t, m, pid, 0, bytes)
		p.Want("graphtrim 0", "ok")
		keeps(t, m, pid, 0, 0)
		dropGraph(p)
		// The graph's own next launch frees the block.
		graphs[0].make(p, bytes, false)
		p.Want("instantiate x graph 1", "ok")
		for range 3 {
			p.Want("launch x s", "ok")
			keeps(t, m, pid, bytes, 0)
		}
		p.Want("free a", "ok")
		dropGraph(p)
		p.Want("graphtrim 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestGraphsFreedBesideALaunch: one thread frees a block of an earlier launch while the driver executes the next
// launch. The launch leaves a new block at the same address, which is charged and freed like the first.
func TestGraphsFreedBesideALaunch(t *testing.T) {
	const limit, bytes = 8 << 20, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		one(p, "graph", "a", bytes, false)
		p.Want("instantiate x graph", "ok")
		p.Want("launch x s", "ok")
		m.Sim("fail", "cuGraphLaunch:*:delay=400ms")
		p.Want("launchfree x s a 100", "ok")
		m.Sim("clear")
		exactly(p, limit-bytes)
		p.Want("free a", "ok")
		p.Want("graphtrim 0", "ok")
		keeps(t, m, pid, 0, 0)
		exactly(p, limit)
	})
}

// TestGraphsAreUploaded: an upload is charged like the launch, and refused like it.
func TestGraphsAreUploaded(t *testing.T) {
	const limit, bytes = 8 << 20, 3000001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream c", "ok")
		for _, g := range graphs {
			for _, l := range launches {
				g.make(p, bytes, true)
				p.Want("instantiate x graph", "ok")
				p.Want(fmt.Sprintf("alloc most %d", limit-bytes+1), "ok")
				p.Want(l.upload, errOutOfMemory)
				keeps(t, m, pid, limit-bytes+1, 0)
				p.Want("free most", "ok")
				for range 3 {
					p.Want(l.upload, "ok")
					keeps(t, m, pid, 0, bytes)
				}
				p.Want(l.launch, "ok")
				p.Want("syncall", "ok")
				keeps(t, m, pid, 0, bytes)
				dropGraph(p)
				p.Want("graphtrim 0", "ok")
				keeps(t, m, pid, 0, 0)
			}
			for _, with := range []string{"instantiatewith x graph 2 s", "withptsz x graph 2 s"} {
				g.make(p, bytes, true)
				p.Want(fmt.Sprintf("alloc most %d", limit-bytes+1), "ok")
				p.Want(with, errOutOfMemory)
				keeps(t, m, pid, limit-bytes+1, 0)
				p.Want("free most", "ok")
				p.Want(with, "ok")
				keeps(t, m, pid, 0, bytes)
				dropGraph(p)
				p.Want("graphtrim 0", "ok")
				keeps(t, m, pid, 0, 0)
			}
		}
		exactly(p, limit)
	})
}

// TestGraphsRollBack: a launch that the driver refuses is not charged.
func TestGraphsRollBack(t *testing.T) {
	const limit, bytes, kept = 8 << 20, 3000001, 5001
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream c", "ok")
		p.Want(fmt.Sprintf("alloc kept %d", kept), "ok")
		fails := func(symbol, command string) {
			m.Sim("fail", symbol+":1:999")
			p.Want(command, "err 999")
			m.Sim("clear")
		}
		for _, frees := range []bool{true, false} {
			for _, l := range launches {
				graphs[0].make(p, bytes, frees)
				fails("cuGraphInstantiateWithFlags", "instantiate x graph")
				fails("cuGraphInstantiateWithParams", "instantiatewith x graph 2 s")
				keeps(t, m, pid, kept, 0)
				p.Want("instantiate x graph", "ok")
				p.Want("instantiate y graph", "err 801")
				fails(l.symbol, l.launch)
				fails("cuGraphUpload*", l.upload)
				keeps(t, m, pid, kept, 0)
				exactly(p, limit-kept)
				p.Want("gate "+l.stream, "ok")
				p.Want(l.launch, "ok")
				if !frees {
					p.Want("freeasync a "+l.stream, "ok")
				}
				fails(l.symbol, l.launch)
				keeps(t, m, pid, kept+bytes, 0)
				fails("cuGraphExecDestroy", "execdestroy x")
				p.Want("open", "ok")
				p.Want("syncall", "ok")
				keeps(t, m, pid, kept, bytes)
				fails("cuDeviceGraphMemTrim", "graphtrim 0")
				keeps(t, m, pid, kept, bytes)
				p.Want("graphtrim 0", "ok")
				keeps(t, m, pid, kept, 0)
				dropGraph(p)
			}
		}
		exactly(p, limit-kept)
	})
}

// TestGraphsAreForgotten: the library's record of an executable graph ends with the graph.
func TestGraphsAreForgotten(t *testing.T) {
	everyWayExactly(t, 8<<20, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		rounds := func(n int) {
			for range n {
				p.Want("graph graph", "ok")
				p.Want("graphalloc a graph 4096", "ok")
				p.Want("graphfree a graph", "ok")
				p.Want("instantiate x graph", "ok")
				dropGraph(p)
			}
		}
		const some, many = 20, 200
		rounds(some)
		before := mapped(t, p.PID())
		rounds(many)
		if more := mapped(t, p.PID()) - before; more >= many*4096/2 {
			t.Errorf("%d graphs that came and went left %d bytes mapped", many, more)
		}
	})
}

// mapped returns how much memory a process has mapped.
func mapped(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var pages int
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestGraphsShareTheirPool: graphs reuse memory that other graphs left in the device's graph pool.
func TestGraphsShareTheirPool(t *testing.T) {
	const limit = 8 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		for i, mib := range []int{5, 3, 6, 1, 8, 2} {
			p.Want(fmt.Sprintf("graph g%d", i), "ok")
			p.Want(fmt.Sprintf("graphalloc a%d g%d %dM", i, i, mib), "ok")
			p.Want(fmt.Sprintf("graphfree a%d g%d", i, i), "ok")
			p.Want(fmt.Sprintf("instantiate x%d g%d", i, i), "ok")
		}
		most := uint64(0)
		for i, mib := range []uint64{5, 3, 6, 1, 8, 2} {
			most = max(most, mib<<20)
			if i == 5 {
				most = mib << 20 // the whole limit: everything is pooled, and the pools are trimmed
			}
			p.Want(fmt.Sprintf("launch x%d s", i), "ok")
			p.Want("sync s", "ok")
			keeps(t, m, pid, 0, most)
		}
		p.Want("alloc other 6M", "ok")
		p.Want("gate s", "ok")
		p.Want("launch x5 s", "ok")
		p.Want("launch x3 s", errOutOfMemory) // the running graph uses the pooled memory
		p.Want("open", "ok")
		p.Want("launch x3 s", "ok")
		p.Want("sync s", "ok")
		p.Want("free other", "ok")
		p.Want("graphtrim 0", "ok")
		exactly(p, limit)
	})
}
