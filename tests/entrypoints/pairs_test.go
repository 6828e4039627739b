package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// beyond is how many calls of the driver's functions commands lead to, beyond so many of
// the program's own.
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

// What the driver is asked for a pair of an allocation and a free in stream order, beyond
// the two: nothing where the stream freed a block of that size itself.
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
		check("the stream's own block", 0, fmt.Sprintf("asyncpairs %d 1M s", pairs))
		p.Want("sync s", "ok") // the pool keeps it
		check("the same, executed", 0, fmt.Sprintf("asyncpairs %d 1M s", pairs))
		for i := range 3 * pairs { // the library's events are made once
			p.Want(fmt.Sprintf("asyncpairs 1 %d s", 2000+i), "ok 1")
		}
		p.Want("sync s", "ok")
		check("sizes that nobody freed", 2, sizes...)
		p.Want("allocasync x 64K s", "ok")
		p.Want("freeasync x other", "ok")
		check("freed on another stream", 2, crossed...)
	})
}

// A free that nobody watched is not taken for executed, whoever asks first: an allocation,
// the end of its stream, or a capture there, which that does not break.
func TestPairsUnwatched(t *testing.T) {
	const limit = 2 << 20
	everyWayExactly(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		free := func() {
			p.Want("asyncpairs 3 2M s", "ok 3")
			p.Want("allocasync x 2M s", "ok")
			p.Want("gate s", "ok")
			m.CountCalls("cuEventRecord")
			p.Want("freeasync x s", "ok")
			if n := m.Calls("cuEventRecord"); n != 0 {
				t.Errorf("the free was watched at once")
			}
			m.Sim("clear")
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
		p.Want("alloc y 2M", "ok") // while the stream is captured
		p.Want("endcapture s g", "ok")
		rest("free y")
		free()
		p.Want("streamdestroy s", "ok")
		p.Want("alloc y 1", errOutOfMemory)
		keeps(t, m, pid, limit, 0)
		rest("open")
	})
}
