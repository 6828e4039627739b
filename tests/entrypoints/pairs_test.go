package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file bounds the driver calls that the library adds to a pair of an allocation and a free in stream
// order, by the count of the simulated driver. pool_growth_test.go counts them beside many pending frees.

// beyond returns how many calls of the driver the commands cause in addition to
// the `own` calls that the program itself makes.
func beyond(m *rig.Machine, p *rig.Program, own int, commands ...string) int {
	m.T.Helper()
	m.CountCalls("cu*")
	for _, command := range commands {
		if answer := p.Ask(command); len(answer) < 2 || answer[:2] != "ok" {
			m.T.Fatalf("%s: %s", command, answer)
		}
	}
	calls := m.Calls("cu*")
	m.Sim("clear")
	return calls - own
}

// TestPairsOfCalls: for a pair of an allocation and a free in stream order, the library adds one call to the
// driver: the query of what the pool holds.
func TestPairsOfCalls(t *testing.T) {
	const pairs = 10
	everyWayExactly(t, 32<<20, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		check := func(what string, want int, commands ...string) {
			t.Helper()
			if n := beyond(m, p, 2*pairs, commands...); n != want*pairs {
				t.Errorf("%s: %d calls beyond the program's for %d pairs, want %d for each", what, n, pairs, want)
			}
		}
		sizes, crossed := []string{}, []string{}
		for i := range pairs {
			sizes = append(sizes, fmt.Sprintf("asyncpairs 1 %d s", 1000+i))
			crossed = append(crossed, "allocasync x 64K s", "freeasync x other")
		}
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		p.Want("poolkeep default 32M", "ok")
		p.Want("asyncpairs 3 1M s", "ok 3")
		check("the stream's own block", 1, fmt.Sprintf("asyncpairs %d 1M s", pairs))
		p.Want("sync s", "ok") // the freed memory stays in the pool
		check("the same, executed", 1, fmt.Sprintf("asyncpairs %d 1M s", pairs))
		check("sizes that nobody freed", 1, sizes...)
		p.Want("allocasync x 64K s", "ok")
		p.Want("freeasync x other", "ok")
		check("freed on another stream", 1, crossed...)
	})
}

// TestPairsNotExecuted: a free counts as executed only when its stream has reached it. Different calls may poll it: an
// allocation, the end of its stream, or a capture of its stream, which the poll must not break. The
// stream is not queried before the capture has ended.
func TestPairsNotExecuted(t *testing.T) {
	const limit = 2 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		free := func() {
			p.Want("asyncpairs 3 2M s", "ok 3")
			p.Want("allocasync x 2M s", "ok")
			p.Want("gate s", "ok")
			p.Want("freeasync x s", "ok")
		}
		rest := func(command string) {
			t.Helper()
			p.Want(command, "ok")
			p.Want("syncall", "ok")
			keeps(t, m, pid, 0, 0)
			exactly(p, limit)
		}
		p.Want("stream s", "ok")
		free()
		p.Want("alloc y 1", errOutOfMemory)
		keeps(t, m, pid, limit, 0)
		rest("open")
		free()
		p.Want("capture s 2", "ok")
		p.Want("alloc y 1", errOutOfMemory)
		keeps(t, m, pid, limit, 0)
		p.Want("open", "ok")
		p.Want("alloc y 1", errOutOfMemory)
		p.Want("capturing s", "ok 1")
		p.Want("endcapture s g", "ok")
		p.Want("alloc y 2M", "ok")
		rest("free y")
		free()
		p.Want("streamdestroy s", "ok")
		p.Want("alloc y 1", errOutOfMemory)
		keeps(t, m, pid, limit, 0)
		rest("open")
	})
}
