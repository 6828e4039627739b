package entrypoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what the synchronous allocations at an address are charged with: plain, pitched and managed
// memory. pool_test.go has allocations in stream order, and array_test.go has arrays.

// blocks are the calls that allocate memory at an address, with the bytes of each: the requested
// bytes, or rows of 512 bytes. %s stands for the name.
var blocks = []struct {
	command, symbol string
	bytes           uint64
	frees           []string
}{
	{"alloc %s 100003", "cuMemAlloc_v2", 100003, []string{"free %s", "freeasync %s s", "freeptsz %s s"}},
	{"allocv1 %s 100003", "cuMemAlloc", 100003, []string{"freev1 %s"}},
	{"pitch %s 1000 33", "cuMemAllocPitch_v2", 1024 * 33, []string{"free %s", "freeasync %s s", "freeptsz %s s"}},
	{"pitchv1 %s 1000 33", "cuMemAllocPitch", 1024 * 33, []string{"freev1 %s"}},
	{"managed %s 100003", "cuMemAllocManaged", 100003, []string{"free %s"}},
}

// granted checks that a command succeeds, whatever values it prints.
func granted(t *testing.T, p *rig.Program, command string) {
	t.Helper()
	if got := p.Ask(command); !strings.HasPrefix(got, "ok") {
		t.Errorf("%s: %s", command, got)
	}
}

// TestBlocksAreCharged: each version of each call is charged to the byte and refused at the byte. It keeps no charge
// when the driver fails, and each version of its free returns all bytes once.
func TestBlocksAreCharged(t *testing.T) {
	const limit, kept = 1<<20 + 1, 5001
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want(fmt.Sprintf("alloc kept %d", kept), "ok")
		for _, b := range blocks {
			take := fmt.Sprintf(b.command, "a")
			m.Sim("fail", b.symbol+":1:999")
			p.Want(take, "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, kept)
			p.Want(fmt.Sprintf("alloc most %d", limit-kept-b.bytes+1), "ok")
			m.CountCalls(b.symbol)
			p.Want(take, errOutOfMemory)
			if n := m.Calls(b.symbol); n != 0 {
				t.Errorf("%s: the driver was asked %d times for what was refused", take, n)
			}
			m.Sim("clear")
			p.Want("free most", "ok")
			p.Want(fmt.Sprintf("alloc most %d", limit-kept-b.bytes), "ok")
			granted(t, p, take)
			holds(t, m, pid, 0, limit)
			p.Want("alloc more 1", errOutOfMemory)
			p.Want("free most", "ok")
			for _, free := range b.frees {
				free = fmt.Sprintf(free, "a")
				m.Sim("fail", "cuMemFree*:1:999")
				p.Want(free, "err 999")
				m.Sim("clear")
				holds(t, m, pid, 0, kept+b.bytes)
				p.Want(free, "ok")
				p.Want("sync s", "ok")
				holds(t, m, pid, 0, kept)
				p.Want(free, errInvalidValue)
				exactly(p, limit-kept)
				granted(t, p, take)
			}
			p.Want(fmt.Sprintf(b.frees[0], "a"), "ok")
		}
	})
}

// TestPitchIsCorrected: a driver makes rows of another length than its texture alignment suggests. The charge
// is for the rows that it made. A block that exceeds the budget is freed again.
func TestPitchIsCorrected(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for unit, row := range map[string]uint64{"2048": 2048, "256": 1280} { // instead of 1536
		for _, version := range []struct{ take, free string }{{"pitch", "free"}, {"pitchv1", "freev1"}} {
			t.Run(fmt.Sprint(version.take, row), func(t *testing.T) {
				t.Parallel()
				m := rig.New(t, rig.Options{NoMount: true, Sim: []string{"SIMCUDA_PITCH=" + unit}})
				p := start(m, "gpa", limit)
				pid := p.PID()
				take := version.take + " a 1100 100"
				p.Want(take, fmt.Sprint("ok ", row))
				holds(t, m, pid, 0, row*100)
				exactly(p, limit-row*100)
				p.Want(version.free+" a", "ok")
				holds(t, m, pid, 0, 0)
				most := limit - max(row, 1536)*100
				p.Want(fmt.Sprintf("alloc most %d", most+1), "ok")
				p.Want(take, errOutOfMemory)
				holds(t, m, pid, 0, most+1)
				p.Want("free most", "ok")
				p.Want(fmt.Sprintf("alloc most %d", most), "ok")
				p.Want(take, fmt.Sprint("ok ", row))
				holds(t, m, pid, 0, most+row*100)
			})
		}
	}
}

// TestBlocksEndWithTheirContext: the blocks of a context are uncharged when any call ends the context.
func TestBlocksEndWithTheirContext(t *testing.T) {
	const limit = 1 << 20
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("alloc kept 1000", "ok")
		for _, c := range []struct{ begin, end string }{
			{"context c", "destroy c"}, {"context c", "destroyv1 c"}, {"context c", "detach c"},
			{"primary c", "reset 0"}, {"primary c", "release 0"}, {"primary c", "resetv1 0"}, {"primary c", "releasev1 0"},
		} {
			p.Want(c.begin, "ok")
			sum := uint64(1000)
			for i, b := range blocks {
				granted(t, p, fmt.Sprintf(b.command, fmt.Sprint("a", i)))
				sum += b.bytes
			}
			holds(t, m, pid, 0, sum)
			p.Want(c.end, "ok")
			holds(t, m, pid, 0, 1000)
			p.Want("use first", "ok")
			if strings.HasPrefix(c.end, "reset") {
				p.Want("release 0", "ok") // the context is still retained
			}
		}
		exactly(p, limit-1000)
	})
}

// TestFirstQuestions: the first versions of the queries report the budget, too, as far as 32 bits allow.
func TestFirstQuestions(t *testing.T) {
	const limit = 100 * mib
	everyWay(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		p.Want("alloc a 4M", "ok")
		p.Want("infov1", fmt.Sprintf("ok %d %d", limit-4*mib, limit))
		p.Want("totalv1 0", fmt.Sprintf("ok %d", limit))
		rich := start(m, "dlsym", 6<<30)
		rich.Want("alloc a 4M", "ok")
		rich.Want("infov1", "ok 4294967295 4294967295")
		rich.Want("totalv1 0", "ok 4294967295")
	})
}
