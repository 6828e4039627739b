package arbiter_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// TestC10RacingClients lets clients take and free by their words while others
// ask, are recalled from, and have their limit lowered and raised: what they truly
// use never passes the limit, and at the end the sums are what is outstanding.
func TestC10RacingClients(t *testing.T) {
	const limit, clients = 64 * mib, 6
	p := rules.DefaultPolicy()
	w := newWorld(t, p, gib)
	job := w.job(t, arbiter.JobRequest{Max: ptr(size(limit))})
	var lock sync.Mutex // the daemon's
	var live atomic.Int64
	cs := make([]*client, clients)
	for i := range cs {
		cs[i] = w.client(job, 0)
	}
	used := make([]accounting.Bytes, clients)
	var wg sync.WaitGroup
	for i, c := range cs {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			for range 3000 {
				n := accounting.Bytes(rng.IntN(int(6*mib)) + 1)
				if used[i] > 0 && rng.IntN(2) == 0 {
					n = min(n, used[i])
					live.Add(-int64(n))
					used[i] -= n
					c.lockedFree(&lock, n)
				} else if c.lockedTake(&lock, n) {
					used[i] += n
					if now := live.Add(int64(n)); now > int64(limit) {
						t.Errorf("%d bytes are used, of %d", now, limit)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 400 {
			lock.Lock()
			most := limit
			if i%2 == 0 {
				most = 8 * mib
			}
			if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: 0, Max: ptr(size(most))}); err != nil {
				t.Error(err)
			}
			w.arb.Tick(w.now)
			w.arb.Snapshot(w.now)
			lock.Unlock()
		}
	})
	bounded.Within(t, "all come to an end", wg.Wait)
	if err := w.arb.SetJobLimits(w.now, job, rules.Change{Device: 0, Max: ptr(size(limit))}); err != nil {
		t.Fatal(err)
	}
	s := w.arb.Snapshot(w.now)
	for i, row := range s.Leases {
		if row.Used != used[i] {
			t.Errorf("client %d: used %d, and the row says %d", i, used[i], row.Used)
		}
	}
	if got := s.Devices[0].Used; got != accounting.Bytes(live.Load()) {
		t.Errorf("the device says %d, %d are used", got, live.Load())
	}
}

// lockedFree frees as a client does; what it tells the daemon, it tells under the lock.
func (c *client) lockedFree(lock *sync.Mutex, n accounting.Bytes) {
	if c.word.free(n) {
		lock.Lock()
		defer lock.Unlock()
		c.w.arb.Freed(c.w.now, c.lease)
	}
}

// lockedTake allocates as a client does: by its word, else by asking under the lock.
func (c *client) lockedTake(lock *sync.Mutex, n accounting.Bytes) bool {
	if c.word.fast(n) {
		return true
	}
	lock.Lock()
	defer lock.Unlock()
	return c.alloc(n).Granted
}
