package arbiter_test

import (
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A new limit of a user holds for each of many jobs and processes when the call that sets it returns. limits_test.go has the cases with few
// clients, and the reload of a configuration.

// TestLimitsOfManyJobs: when the call that sets a user's limit returns, the limit is in force for all jobs of the user and for all
// processes of a job.
func TestLimitsOfManyJobs(t *testing.T) {
	t.Run("jobs", func(t *testing.T) { w := newWorld(t, exact(unlimited()), gib); limitsOfMany(t, w, 0) })
	t.Run("processes", func(t *testing.T) {
		w := newWorld(t, exact(unlimited()), gib)
		limitsOfMany(t, w, w.job(t, arbiter.JobRequest{}))
	})
}

func limitsOfMany(t *testing.T, w *world, job arbiter.JobID) {
	const n, each = 50, 10
	var all []*client
	for range n {
		c := w.client(job, 0)
		c.must(each)
		all = append(all, c)
	}
	closed := func() (number int) {
		for _, c := range all {
			if c.word.closed() {
				number++
			}
		}
		return number
	}
	set := func(limit accounting.Size) {
		if err := w.arb.SetUserLimits(w.now, bob, "bob", rules.Change{Device: rules.AllDevices, Max: &limit}); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name   string
		limit  accounting.Size
		fits   bool
		closed int
	}{
		{"lowered", size(n*each - 1), false, n},
		{"raised", size(n*each + 3*n), true, 0},
		{"lowered again", size(each), false, n},
		{"taken off", unlimited(), true, 0},
	} {
		set(x.limit)
		if o := all[n-1].alloc(1); o.Granted != x.fits && x.closed == 0 {
			t.Errorf("%s: who asks at once: %+v", x.name, o)
		}
		if got := closed(); got != x.closed {
			t.Errorf("%s: %d of %d words are closed, want %d", x.name, got, n, x.closed)
		}
		for _, c := range all {
			if o := c.alloc(1); o.Granted != x.fits {
				t.Errorf("%s: %+v", x.name, o)
			}
		}
	}
}
