package entrypoints

import (
	"fmt"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows what happens when a pool must grow by more than a request: the budget holds except for one
// granule, and neither captures nor waiting programs are disturbed. pool_test.go has the pools themselves.

// fragmented makes a machine whose pools grow by 2 MiB and never join pieces of two
// chunks, with a program on it; limit 0: without a budget of its own.
func fragmented(t *testing.T, o rig.Options, limit uint64) (*rig.Machine, *rig.Program) {
	t.Helper()
	o.NoMount = true
	o.Devices = "2G"
	o.Sim = []string{"SIMCUDA_CONTEXT_BYTES=0", fmt.Sprintf("SIMCUDA_POOL_GRANULE=%d", 2*mib)}
	m := rig.New(t, o)
	if limit == 0 {
		return m, m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	}
	return m, start(m, "dlsym", limit)
}

// breakUp brings a program's pool into this state: it keeps 90 of 100 MiB. Stream s freed a block of 100 MiB, and
// another stream has allocated a part of it since. So the pool must grow for the next
// block of s.
func breakUp(t *testing.T, p *rig.Program) {
	t.Helper()
	p.Want("stream s", "ok")
	p.Want("stream other", "ok")
	p.Want("stream captured", "ok")
	p.Want("poolkeep default 1G", "ok")
	p.Want("alloc credit 20M", "ok")
	p.Want("allocasync a 100M s", "ok")
	p.Want("free credit", "ok") // leaves credit, so that the library need not ask the daemon for the next 20 MiB
	p.Want("freeasync a s", "ok")
	rig.Eventually(t, "the free has executed", func() bool { return p.Ask("query s") == "ok" })
	p.Want("allocasync x 10M other", "ok")
}

// TestPoolsMayNotGrowBesideACapture: a pool that may not grow releases what it grew by. That does not break the capture of another
// stream, in any capture mode.
func TestPoolsMayNotGrowBesideACapture(t *testing.T) {
	t.Parallel()
	const limit = 150 * mib
	for mode := range 3 {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			t.Parallel()
			m, p := fragmented(t, rig.Options{}, limit)
			breakUp(t, p)
			p.Want(fmt.Sprintf("capture captured %d", mode), "ok")
			p.Want("allocasync more 100M s", errOutOfMemory)
			p.Want("capturing captured", "ok 1")
			p.Want("endcapture captured graph", "ok")
			within(t, m, p.PID(), limit, 2*mib)
			p.Want("allocasync more 90M s", "ok") // what is left of the freed 100 MiB, so the pool need not grow
			within(t, m, p.PID(), limit, 2*mib)
		})
	}
}

// TestPoolsWaitBeforeTheyGrow: a program that waits for memory of other programs waits for a whole block. The driver holds
// no part of the block meanwhile.
func TestPoolsWaitBeforeTheyGrow(t *testing.T) {
	t.Parallel()
	const limit = 200 * mib
	m, p := fragmented(t, rig.Options{Config: fmt.Sprintf(
		"schema_version = 1\n[defaults]\nscope = \"user\"\non_full = \"wait\"\nmemory.max = %d\n", limit)}, 0)
	other := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	breakUp(t, p)
	other.Want("alloc rest 50M", "ok")
	p.Tell("allocasync more 100M s")
	rig.Eventually(t, "the allocation is queued", func() bool { return len(m.Snapshot().Queue) == 1 })
	if used := m.SimNumber("used", "0"); used >= limit+2*mib {
		t.Errorf("the driver counts %d MiB under a budget of %d, while the program waits", used/mib, limit/mib)
	}
	other.Want("free rest", "ok")
	p.Expect("allocasync more ok")
	if used := m.SimNumber("used", "0"); used >= limit+2*mib {
		t.Errorf("the driver counts %d MiB under a budget of %d", used/mib, limit/mib)
	}
}

// TestPoolsOfLargeGranules: pools that grow by more than 32 MiB work under budgets that are smaller than that, to
// the byte.
func TestPoolsOfLargeGranules(t *testing.T) {
	t.Parallel()
	const limit = 10 * mib
	for _, granule := range []uint64{64 * mib, 256 * mib} {
		t.Run(fmt.Sprintf("%dM", granule/mib), func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Devices: "2G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0",
				fmt.Sprintf("SIMCUDA_POOL_GRANULE=%d", granule)}})
			p := start(m, "dlsym", limit)
			p.Want("stream s", "ok")
			p.Want("stream other", "ok")
			for _, threshold := range []string{"0", "1G"} {
				p.Want("poolkeep default "+threshold, "ok")
				for _, stream := range []string{"s", "other"} {
					p.Want("allocasync a 8M "+stream, "ok")
					p.Want("allocasync b 2M "+stream, "ok")
					p.Want("allocasync c 1 "+stream, errOutOfMemory)
					within(t, m, p.PID(), limit, granule)
					p.Want("freeasync a "+stream, "ok")
					p.Want("freeasync b "+stream, "ok")
					p.Want("sync "+stream, "ok")
				}
			}
			p.Want("pooltrim default 0", "ok")
			keeps(t, m, p.PID(), 0, 0)
			exactly(p, limit)
		})
	}
}

// TestPairsBesidePendingFrees: pending frees do not slow down other pairs. The number of driver calls for a pair
// is independent of the number of pending frees on a blocked stream.
func TestPairsBesidePendingFrees(t *testing.T) {
	t.Parallel()
	const pairs, pending = 50, 2000
	m := rig.New(t, rig.Options{NoMount: true, Devices: "64M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := start(m, "dlsym", 32<<20)
	p.Want("stream s", "ok")
	p.Want("stream stuck", "ok")
	p.Want("gate stuck", "ok")
	check := func() {
		t.Helper()
		for i, commands := range [][]string{{fmt.Sprintf("asyncpairs %d 3000 s", pairs)}, {}} {
			for n := 0; i == 1 && n < pairs; n++ {
				commands = append(commands, "allocasync x 5000 s", "freeasync x stuck")
			}
			if n := beyond(m, p, 2*pairs, commands...); n > 2*pairs {
				t.Errorf("%d calls beyond the program's for %d pairs, want two for each at most", n, pairs)
			}
		}
	}
	check()
	for i := range pending {
		p.Want(fmt.Sprintf("allocasync p%d 1000 s", i), "ok")
	}
	calls := beyond(m, p, pending, free(pending)...)
	if calls != 0 {
		t.Errorf("%d calls beyond the program's for %d frees", calls, pending)
	}
	check()
	p.Want("open", "ok")
	p.Want("syncall", "ok")
	keeps(t, m, p.PID(), 0, 0)
}

// free returns commands that free count blocks on the blocked stream.
func free(count int) []string {
	commands := []string{}
	for i := range count {
		commands = append(commands, fmt.Sprintf("freeasync p%d stuck", i))
	}
	return commands
}
