package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a client which writes arbitrary values into its lease page spoils only its own row. sane, which
// compares the sums of a snapshot, is used by the other files, too. seen_test.go has false limits in a page.

func init() { roles["scribbler"] = scribble }

// patterns are generators of the values that the scribbler writes into its lease page.
var patterns = []func(r *rand.Rand) uint64{
	func(*rand.Rand) uint64 { return ^uint64(0) },
	func(*rand.Rand) uint64 { return 0 },
	func(r *rand.Rand) uint64 { return r.Uint64() },
	func(r *rand.Rand) uint64 { return uint64(ipc.MakeCreditWord(ipc.CreditLimit, uint16(r.Uint32()), 0)) },
	func(r *rand.Rand) uint64 {
		return uint64(ipc.MakeCreditWord(r.Uint64N(1<<31), uint16(r.Uint32()), r.Uint64()))
	},
}

// scribble opens a lease ("start UUID PATTERN SEED") and writes into every word of its
// page without a pause. Meanwhile it requests memory that it never allocates. "stop" ends it.
func scribble(a *attacker) error {
	for {
		words, ok := a.next()
		if !ok {
			return nil
		}
		var n, seed uint64
		if _, err := fmt.Sscan(words[2]+" "+words[3], &n, &seed); err != nil {
			return err
		}
		s, slot, err := a.lease(parseUUID(words[1]))
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(a.ctx)
		var wg sync.WaitGroup
		for i := range uint64(2) {
			wg.Go(func() { overwrite(ctx, s.Page, patterns[n], rand.New(rand.NewPCG(seed, i))) })
		}
		wg.Go(func() { askAndPunch(ctx, s, slot, rand.New(rand.NewPCG(seed, 9))) })
		a.say("started %d", os.Getpid())
		_, ok = a.next()
		stop()
		wg.Wait()
		_ = s.Close()
		a.say("stopped")
		if !ok {
			return nil
		}
	}
}

func overwrite(ctx context.Context, page *ipc.LeasePage, pattern func(*rand.Rand) uint64, r *rand.Rand) {
	all := unsafe.Slice((*uint64)(unsafe.Pointer(page.CreditWord(0))), ipc.PageSlots*8) // from the first slot on
	for ctx.Err() == nil {
		for range 1000 {
			n := r.IntN(len(all))
			if r.IntN(2) == 0 {
				n = 0 // the credit word of the lease
			}
			all[n] = pattern(r)
		}
		page.Ended().Store(uint32(pattern(r)))
		page.Threads().Store(uint32(pattern(r)))
	}
}

func askAndPunch(ctx context.Context, s *ipc.ShimSession, slot uint32, r *rand.Rand) {
	for ctx.Err() == nil {
		switch r.IntN(4) {
		case 0:
			_ = unix.Fallocate(s.Page.FD(), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, ipc.PageSize)
		case 1:
			_ = s.Main.Freed(slot)
		default:
			_, _ = s.Main.Alloc(ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 1 + r.Uint64N(1<<22)})
		}
	}
}

// TestRubbishInThePage: whatever a client writes into its lease page, the rows of other clients and
// the sums stay right, and the daemon never holds its lock for long.
func TestRubbishInThePage(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	honest := make([]*rig.Program, 3)
	for i := range honest {
		honest[i] = cudaprog(m)
	}
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	evil := start(m, "scribbler")
	var pid int
	for n := range patterns {
		evil.Tell(fmt.Sprintf("start %s %d %d", id, n, *seed))
		if _, err := fmt.Sscanf(evil.Line(), "started %d", &pid); err != nil {
			t.Fatal(err)
		}
		var worst time.Duration
		for round := range 3 * *scale {
			for i, p := range honest {
				p.Tell(fmt.Sprintf("threads 3 100 200M %d", 100*n+10*round+i+1))
			}
			began := time.Now()
			sane(t, m)
			worst = max(worst, time.Since(began))
			for _, p := range honest {
				p.Line()
			}
			agree(t, m, pid)
			sane(t, m)
		}
		t.Logf("pattern %d: the slowest snapshot took %v", n, worst)
		evil.Tell("stop")
		if line := evil.Line(); line != "stopped" {
			t.Fatalf("the scribbler says %q", line)
		}
		rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == len(honest) })
	}
	say(t, honest[0], "alloc all 1G", "ok")
	say(t, honest[1], "alloc one 1", "err 2")
	say(t, honest[0], "free all", "ok")
	agree(t, m)
}

// sane checks the sums of a snapshot against each other.
func sane(t *testing.T, m *rig.Machine) {
	t.Helper()
	s := m.Snapshot()
	for _, d := range s.Devices {
		var granted, away uint64 // granted bytes that are away from the device, because the scribbler also writes the word for managed memory
		for _, l := range s.Leases {
			if l.Device != d.Index {
				continue
			}
			granted += uint64(l.Granted)
			away += uint64(l.Away)
			if l.Credit > l.Granted || l.Used > l.Granted || l.Peak > d.Total {
				t.Errorf("the daemon accepted an impossible lease: %+v", l)
			}
		}
		if granted != uint64(d.Granted) || granted-away > uint64(d.Capacity) {
			t.Errorf("GPU %d: %d bytes granted, its leases have %d, %d of them away, its capacity is %d", d.Index, d.Granted, granted, away, d.Capacity)
		}
	}
}
