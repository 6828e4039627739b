package conformance

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the rows C1 to C9 of rows.txt: memory budgets. C10 is in race_test.go, C11 in devices_test.go.

// room compares the program's cuMemGetInfo with the limit
// and with what the driver holds.
func room(t *testing.T, p *rig.Program, limit, held uint64) {
	t.Helper()
	if got, want := p.Ask("info"), fmt.Sprintf("ok %d %d", limit-held, limit); got != want {
		t.Errorf("with %d of %d bytes held, free and total are %q, want %q", held, limit, got, want)
	}
}

// TestC1WithinTheLimit: an allocation within the limit succeeds, and held and remaining bytes change by exactly its size.
func TestC1WithinTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 64<<20 + 1
	everyWay(t, rig.Options{}, limits{memory: limit}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid, held := p.PID(), uint64(0)
		for _, step := range []struct {
			command string
			moves   int64
		}{
			{"alloc a 1", 1},
			{"alloc b 1000003", 1000003},
			{"managed c 70001", 70001},
			{"pitch d 100 33", 512 * 33}, // rows of 512 bytes
			{"allocasync e 5003 0", 5003},
			{"allocpool f 4099 0", 4099},
			{"alloc g 20M", 20 << 20}, // more than any unused credit
			{"free b", -1000003},
			{"free d", -512 * 33},
			{"alloc b 7", 7},
			{"free g", -20 << 20},
		} {
			if got := p.Ask(step.command); !strings.HasPrefix(got, "ok") {
				t.Fatalf("%s: %s", step.command, got)
			}
			held = uint64(int64(held) + step.moves)
			holds(t, m, pid, 0, held, 0)
			room(t, p, limit, held)
		}
		for _, file := range []string{
			"devices/0/memory.current", fmt.Sprintf("jobs/%d/memory.current", m.Lease(pid, 0).Job), fmt.Sprintf("processes/%d/memory.current", pid),
		} {
			if got := m.Read(file); got != fmt.Sprintln(held) {
				t.Errorf("%s is %q, want %d", file, got, held)
			}
		}
		if l := m.Lease(pid, 0); l.Denied != 0 {
			t.Errorf("%d requests were refused", l.Denied)
		}
		if n := m.Snapshot().Stats.TotalJobs; n != 1 {
			t.Errorf("one program is %d jobs", n)
		}
	})
}

// TestC2ExactLimit: the last byte of a limit is granted, in many small blocks or in one, for every kind of memory.
func TestC2ExactLimit(t *testing.T) {
	t.Parallel()
	const limit = 24<<20 + 7
	everyWay(t, rig.Options{NoMount: true}, limits{memory: limit}, func(t *testing.T, w way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		m.CountCalls("cuMem*Alloc*")
		p.Want(fmt.Sprintf("alloc all %d", limit), "ok")
		holds(t, m, pid, 0, limit, 0)
		before := stateOf(m, pid)
		for _, one := range []string{"alloc", "managed", "allocasync"} {
			p.Want(one+" more 1 0", errOutOfMemory)
			if after := stateOf(m, pid); after != before {
				t.Errorf("%s of one more byte moves %+v to %+v", one, before, after)
			}
		}
		if n := m.Calls("cuMem*Alloc*"); n != 1 {
			t.Errorf("the driver was asked %d times, want once: for what was granted", n)
		}
		p.Want("free all", "ok")
		p.Want("fill blocks 4096", "ok 6144 err 2") // 24 MiB
		p.Want("alloc six 6", "ok")
		p.Want("alloc last 1", "ok")
		p.Want("alloc more 1", errOutOfMemory)
		holds(t, m, pid, 0, limit, 0)
		if peak := m.SimNumber("peak", "0"); peak != limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
		stderr := p.End()
		if w.run {
			contains(t, stderr, "): out of memory on GPU 0: asked 1 byte, 0 bytes left of the job's 24 MiB budget")
		} else {
			contains(t, stderr, "refused: 1 bytes on device 0 (status ")
			contains(t, stderr, ", remaining 0)")
		}
	})
	t.Run("protocol", func(t *testing.T) {
		t.Parallel()
		m := rig.New(t, rig.Options{NoMount: true})
		s, slot := lease(t, m, ipc.HelloRequest{Memory: limit}, 0)
		if _, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: limit}); err != nil {
			t.Fatal(err)
		}
		refusal(t, s, slot, 1, ipc.AllocReply{Requested: 1, Remaining: 0, Limit: limit})
	})
}

// refusal requests more bytes than are available, and compares every figure of the answer.
func refusal(t *testing.T, s *ipc.ShimSession, slot uint32, bytes uint64, want ipc.AllocReply) {
	t.Helper()
	got, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes})
	var refused *ipc.ReplyError
	if !errors.As(err, &refused) || refused.Status != ipc.StatusOverBudget {
		t.Errorf("%d bytes: %v, want to be over the budget", bytes, err)
	}
	want.Text = got.Text // text for users, not compared
	if got != want {
		t.Errorf("%d bytes: granted %d, requested %d, remaining %d, limit %d; want 0, %d, %d, %d",
			bytes, got.Granted, got.Requested, got.Remaining, got.Limit, want.Requested, want.Remaining, want.Limit)
	}
}

// With a limit of 64 MiB the daemon grants more credit than was requested. The program can still allocate
// that credit, so it counts as remaining.
var overTheLimit = []struct{ limit, held, asked, remaining uint64 }{
	{1024, 768, 512, 256},
	{64 << 20, 40<<20 + 1, 24 << 20, 24<<20 - 1},
}

// TestC3OverTheLimit: a refusal has the exact bytes that were requested and that remain.
func TestC3OverTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range overTheLimit {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			t.Parallel()
			everyWay(t, rig.Options{NoMount: true}, limits{memory: c.limit}, func(t *testing.T, w way, m *rig.Machine, p *rig.Program) {
				pid := p.PID()
				p.Want(fmt.Sprintf("alloc held %d", c.held), "ok")
				m.CountCalls("cuMemAlloc*")
				before := stateOf(m, pid)
				p.Want(fmt.Sprintf("alloc more %d", c.asked), errOutOfMemory)
				if after := stateOf(m, pid); after != before {
					t.Errorf("the refusal moves %+v to %+v", before, after)
				}
				if l := m.Lease(pid, 0); l.Denied != 1 {
					t.Errorf("%d refusals are counted, want 1", l.Denied)
				}
				if n := m.Calls("cuMemAlloc*"); n != 0 {
					t.Errorf("the driver was asked %d times for what was refused", n)
				}
				holds(t, m, pid, 0, c.held, 0)
				p.Want(fmt.Sprintf("alloc rest %d", c.remaining), "ok")
				holds(t, m, pid, 0, c.limit, 0)
				stderr := p.End()
				switch {
				case w.run && c.limit == 1024:
					contains(t, stderr, "): out of memory on GPU 0: asked 512 bytes, 256 bytes left of the job's 1 KiB budget\n")
				case !w.run:
					contains(t, stderr, fmt.Sprintf("refused: %d bytes on device 0 (status ", c.asked))
					contains(t, stderr, fmt.Sprintf(", remaining %d)", c.remaining))
				}
			})
		})
	}
	for _, c := range overTheLimit {
		t.Run(fmt.Sprintf("protocol, %d", c.limit), func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true})
			s, slot := lease(t, m, ipc.HelloRequest{Memory: c.limit}, 0)
			if _, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: c.held}); err != nil {
				t.Fatal(err)
			}
			refusal(t, s, slot, c.asked, ipc.AllocReply{Requested: c.asked, Remaining: c.remaining, Limit: c.limit})
		})
	}
}

// TestC4DriverFails: if the driver fails after admission, all bytes are returned and the program gets the driver's error.
func TestC4DriverFails(t *testing.T) {
	t.Parallel()
	const limit, kept = 16<<20 + 3, 300001
	everyWay(t, rig.Options{NoMount: true}, limits{memory: limit}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want(fmt.Sprintf("alloc kept %d", kept), "ok")
		for _, c := range []struct{ function, command, code string }{
			{"cuMemAlloc_v2", "alloc a 5001", "2"},
			{"cuMemAlloc_v2", "alloc a 9M", "999"}, // more than any unused credit
			{"cuMemAllocPitch_v2", "pitch a 100 33", "46"},
			{"cuMemAllocManaged", "managed a 70001", "801"},
			{"cuMemAllocAsync", "allocasync a 5001 0", "2"},
			{"cuMemAllocFromPoolAsync", "allocpool a 5001 0", "999"},
		} {
			m.Sim("fail", c.function+":1-:"+c.code) // after out of memory the library calls once more
			p.Want(c.command, "err "+c.code)
			m.Sim("clear")
			holds(t, m, pid, 0, kept, 0)
			p.Want(fmt.Sprintf("alloc rest %d", limit-kept), "ok") // no byte is missing
			p.Want("alloc more 1", errOutOfMemory)                 // and there is no byte too many
			p.Want("free rest", "ok")
		}
		agree(t, m)
	})
}

// TestC5SynchronousFree: a synchronous free returns its bytes at once, and a later poll of pending frees changes nothing.
func TestC5SynchronousFree(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	everyWay(t, rig.Options{NoMount: true}, limits{memory: limit}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		for range 3 {
			p.Want(fmt.Sprintf("alloc all %d", limit), "ok")
			p.Want("free all", "ok")
			holds(t, m, pid, 0, 0, 0)
		}
		// Free one block at once and one in stream order. The poll for the second free must return only its 1000 bytes.
		p.Want("stream s", "ok")
		p.Want("allocasync late 1000 s", "ok")
		p.Want("alloc now 2000", "ok")
		p.Want("free now", "ok")
		holds(t, m, pid, 0, 1000, 1)
		p.Want("gate s", "ok")
		p.Want("freeasync late s", "ok")
		holds(t, m, pid, 0, 1000, 1)
		p.Want("open", "ok")
		p.Want("sync s", "ok")
		p.Want(fmt.Sprintf("alloc all %d", limit), "ok") // succeeds only after a poll of pending frees
		holds(t, m, pid, 0, limit, 1)
		p.Want("alloc more 1", errOutOfMemory) // polls again and finds no executed free
		holds(t, m, pid, 0, limit, 1)
		p.Want("free all", "ok")
		p.Want("alloc one 1", "ok")
		p.Want(fmt.Sprintf("alloc all %d", limit), errOutOfMemory) // polls once more
		holds(t, m, pid, 0, 1, 1)
		p.Want("fill blocks 65536", "ok 255 err 2")
		if peak := m.SimNumber("peak", "0"); peak > limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
	})
}

// TestC5FreedForOthers: memory that one process frees is available at once to another process of its budget.
func TestC5FreedForOthers(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	m := rig.New(t, rig.Options{NoMount: true, Config: sharedConfig(limit)})
	a, b := ways[3].start(m, limits{}), ways[4].start(m, limits{})
	for range 3 {
		a.Want(fmt.Sprintf("alloc all %d", limit), "ok")
		b.Want("alloc one 1", errOutOfMemory)
		a.Want("free all", "ok")
		b.Want(fmt.Sprintf("alloc all %d", limit), "ok")
		a.Want("alloc one 1", errOutOfMemory)
		agree(t, m)
		b.Want("free all", "ok")
	}
	agree(t, m)
}

// sharedConfig gives all processes of a user one budget.
func sharedConfig(limit uint64) string {
	return fmt.Sprintf("schema_version = 1\n[defaults]\nscope = \"user\"\nmemory.max = %d\n", limit)
}

// everyGranule runs a test in every way, on machines whose pools have exactly the bytes of their blocks, or grow by
// 2 MiB or by 32 MiB.
func everyGranule(t *testing.T, limit uint64, f func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64)) {
	t.Parallel()
	for _, granule := range []uint64{0, 2 << 20, 32 << 20} {
		t.Run(fmt.Sprintf("granule=%dM", granule>>20), func(t *testing.T) {
			t.Parallel()
			o := rig.Options{NoMount: true, Sim: []string{fmt.Sprintf("SIMCUDA_POOL_GRANULE=%d", granule)}}
			everyWay(t, o, limits{memory: limit}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
				f(t, m, p, granule)
			})
		})
	}
}

// noMore checks that the driver has no more in use than the limit, one granule
// and the memory of the contexts.
func noMore(t *testing.T, m *rig.Machine, contexts, limit, granule uint64) {
	t.Helper()
	if used := m.SimNumber("used", "0") - contexts; used > limit+granule {
		t.Errorf("the driver counts %d bytes, the limit is %d and a granule %d", used, limit, granule)
	}
}

// TestC6AsynchronousFree: a free in stream order returns its bytes when the stream has executed it. A gate in a stream of
// the simulated driver delays everything behind it.
func TestC6AsynchronousFree(t *testing.T) {
	const limit, late = 8<<20 + 1, 1<<20 + 1
	everyGranule(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64) {
		contexts := m.SimNumber("used", "0")
		pid := p.PID()
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		for _, stream := range []string{"s", "2", "0"} {
			p.Want(fmt.Sprintf("allocasync late %d %s", late, stream), "ok")
			p.Want("allocasync kept 1000 "+stream, "ok")
			p.Want("gate "+stream, "ok")
			p.Want("freeasync late "+stream, "ok")
			if l := m.Lease(pid, 0); uint64(l.Used) != late+1000 || uint64(l.Pending) != late {
				t.Errorf("on stream %s: %d bytes are used, %d of them pending; want %d and %d", stream, l.Used, l.Pending, late+1000, late)
			}
			p.Want("allocasync more 8M "+stream, errOutOfMemory) // polls pending frees; none has executed
			if h := m.HeldBy(pid, 0); h.Bytes != late+1000 {
				t.Errorf("on stream %s: the driver holds %d bytes, want %d: the free was not late", stream, h.Bytes, late+1000)
			}
			// Another stream that allocates from the same pool cannot have the bytes either.
			p.Want(fmt.Sprintf("alloc full %d", limit-late-1000), "ok")
			p.Want("allocasync more 1 other", errOutOfMemory)
			noMore(t, m, contexts, limit, granule)
			p.Want("open", "ok")
			p.Want("sync "+stream, "ok")
			p.Want("free full", "ok")
			p.Want(fmt.Sprintf("alloc rest %d", limit-1000), "ok") // needs exactly the freed bytes
			p.Want("alloc more 1", errOutOfMemory)
			p.Want("free rest", "ok")
			p.Want("free kept", "ok")
			p.Want("syncall", "ok")
			holds(t, m, pid, 0, 0, m.HeldBy(pid, 0).Streams)
			// A block outside of pools is not available before its free has executed either.
			p.Want(fmt.Sprintf("alloc rest %d", limit-late), "ok")
			p.Want(fmt.Sprintf("alloc late %d", late), "ok")
			p.Want("gate "+stream, "ok")
			p.Want("freeasync late "+stream, "ok")
			p.Want("alloc more 8M", errOutOfMemory) // polls pending frees and does not wait
			if l := m.Lease(pid, 0); uint64(l.Used) != limit {
				t.Errorf("on stream %s: %d bytes are used, want %d: the free was not late", stream, l.Used, limit)
			}
			p.Want("open", "ok")
			p.Want("sync "+stream, "ok")
			p.Want(fmt.Sprintf("alloc late %d", late), "ok")
			p.Want("free late", "ok")
			p.Want("free rest", "ok")
			holds(t, m, pid, 0, 0, m.HeldBy(pid, 0).Streams)
		}
		if peak := m.SimNumber("peak", "0"); peak != limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
	})
}

// TestC8TriedAgain: a request that does not fit is tried again after a poll of pending frees, so a tight loop never fails.
func TestC8TriedAgain(t *testing.T) {
	const limit = 1 << 20
	everyGranule(t, limit, func(t *testing.T, m *rig.Machine, p *rig.Program, granule uint64) {
		pid := p.PID()
		contexts := m.SimNumber("used", "0")
		p.Want("stream s", "ok")
		p.Want("stream other", "ok")
		for _, again := range []string{"alloc b 1M", "managed b 1M", "pitch b 1M 1", "allocasync b 1M other", "allocpool b 1M s"} {
			p.Want("allocasync a 1M s", "ok")
			p.Want("delay s 5", "ok")
			p.Want("freeasync a s", "ok")
			if got := p.Ask(again); !strings.HasPrefix(got, "ok") {
				t.Fatalf("%s: %s, though what is in the way is on its way back", again, got)
			}
			p.Want("free b", "ok")
			p.Want("syncall", "ok")
			holds(t, m, pid, 0, 0, 2)
		}
		p.Want("asyncpairs 3000 1M s other", "ok 3000")
		noMore(t, m, contexts, limit, granule)
		p.Want("asyncpairs 3000 1M s 0 2", "ok 3000")
		noMore(t, m, contexts, limit, granule)
		p.Want("syncall", "ok")
		holds(t, m, pid, 0, 0, 2)
		if peak := m.SimNumber("peak", "0"); peak > limit {
			t.Errorf("the driver saw %d bytes at once, the limit is %d", peak, limit)
		}
	})
}

// TestC7NeverFits: a request above the whole limit is refused without a poll of pending frees and without a driver call.
func TestC7NeverFits(t *testing.T) {
	t.Parallel()
	const limit = 16 << 20
	// Calls that allocate, free, or poll pending frees.
	counted := []string{"cuMem*", "cuEvent*", "cuStreamQuery*", "cuStreamSynchronize*"}
	everyWay(t, rig.Options{NoMount: true}, limits{memory: limit}, func(t *testing.T, w way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("alloc first 17M", errOutOfMemory) // before anything else
		p.Want("stream s", "ok")
		p.Want("allocasync late 1000 s", "ok")
		p.Want("freeasync late s", "ok")
		rig.Eventually(t, "the free has executed", func() bool { return p.Ask("query s") == "ok" })
		// Without a poll the ledger still has the bytes that the driver no longer has.
		if held := m.SimNumber("total", "0"); held != 0 {
			t.Fatalf("the driver holds %d bytes", held)
		}
		before := stateOf(m, pid)
		if before.used != 1000 || before.pending != 1000 {
			t.Fatalf("%d bytes are used and %d pending, want 1000: this test shows nothing", before.used, before.pending)
		}
		for _, pattern := range counted {
			m.CountCalls(pattern)
		}
		denied := m.Lease(pid, 0).Denied
		asked := []string{
			fmt.Sprintf("alloc a %d", limit+1), "alloc a 9G", "alloc a 1000000T",
			fmt.Sprintf("managed a %d", limit+1), fmt.Sprintf("allocasync a %d s", limit+1), "pitch a 512 40000",
		}
		for _, command := range asked {
			p.Want(command, errOutOfMemory)
			if after := stateOf(m, pid); after != before {
				t.Errorf("%s moves %+v to %+v", command, before, after)
			}
		}
		for _, pattern := range counted {
			if n := m.Calls(pattern); n != 0 {
				t.Errorf("%d calls of %s of the driver, want none", n, pattern)
			}
		}
		if n := m.Lease(pid, 0).Denied - denied; n != uint64(len(asked)) {
			t.Errorf("%d refusals are counted, want %d", n, len(asked))
		}
		p.Want(fmt.Sprintf("alloc all %d", limit), "ok") // a request that could fit polls pending frees
		holds(t, m, pid, 0, limit, 1)
		if stderr := p.End(); w.run {
			contains(t, stderr, "asked 17 MiB, more than the job's 16 MiB budget could ever hold")
		}
	})
}

// TestC9UnknownPointer: freeing an unknown pointer returns no bytes, and the real free still works.
func TestC9UnknownPointer(t *testing.T) {
	t.Parallel()
	const limit = 8<<20 + 5
	everyWay(t, rig.Options{NoMount: true}, limits{memory: limit}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("alloc a 5000", "ok")
		p.Want("alloc b 3000", "ok")
		inside := p.Number("value a") + 1
		p.Want("freeunknown 4096", errInvalidValue)
		p.Want(fmt.Sprintf("freeunknown %d", inside), errInvalidValue)
		p.Want("freeunknown 0", "ok") // freeing address 0 frees nothing, and is valid
		holds(t, m, pid, 0, 8000, 0)
		p.Want("free a", "ok")
		p.Want("free a", errInvalidValue)
		p.Want("freeasync a 0", errInvalidValue)
		holds(t, m, pid, 0, 3000, 0)
		// A free that the driver refuses frees no bytes either.
		for _, c := range []struct{ function, command string }{
			{"cuMemFree_v2", "free b"}, {"cuMemFreeAsync", "freeasync b 0"},
		} {
			m.Sim("fail", c.function+":1-2:999")
			p.Want(c.command, "err 999")
			p.Want(c.command, "err 999")
			m.Sim("clear")
			holds(t, m, pid, 0, 3000, 0)
		}
		p.Want(fmt.Sprintf("alloc rest %d", limit-3000), "ok")
		p.Want("alloc more 1", errOutOfMemory)
		p.Want("free rest", "ok")
		p.Want("free b", "ok") // the real free still works
		holds(t, m, pid, 0, 0, 0)
		p.Want(fmt.Sprintf("alloc all %d", limit), "ok")
		p.Want("alloc more 1", errOutOfMemory)
	})
}
