package fair

import (
	"testing"
	"testing/synctest"
	"time"
)

// This file checks how many changes of limits a user can make in a second, in simulated time: the bound for one user,
// the longer pause after slow changes, and that no user waits for another one's. daemon/setlimit_test.go checks that
// a daemon uses the bound.

// TestChangesOfAUserWait checks that a hundred changes of a busy user pass in a second, independent of other users.
// The other changes pass one by one later.
func TestChangesOfAUserWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const loop, other = 4242, 4243
		c := Changes{Now: time.Now, After: time.After}
		pass := func(uid uint32, n int) {
			t.Helper()
			for range n {
				if err := c.Wait(t.Context(), uid); err != nil {
					t.Fatal(err)
				}
			}
		}
		pass(loop, ChangesPerSecond)
		through := make(chan int, 2*ChangesPerSecond+1)
		go func() {
			for i := range cap(through) {
				_ = c.Wait(t.Context(), loop)
				through <- i
			}
		}()
		for second := range 2 {
			synctest.Wait()
			if got := len(through); got != second*ChangesPerSecond {
				t.Errorf("%d went through at once, and %d in %d seconds", ChangesPerSecond, got, second)
			}
			pass(other, ChangesPerSecond/2)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if got := len(through); got != 2*ChangesPerSecond {
			t.Errorf("%d went through in two seconds", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(through) != cap(through) {
			t.Errorf("%d of %d went through", len(through), cap(through))
		}
	})
}

// TestChangesThatTakeLongAreFewer checks that fewer changes pass in a second if they hold the lock for longer. A very
// long change delays the user's next one until the user's changes have held the lock for at most a fifth of the time.
func TestChangesThatTakeLongAreFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const uid = 4242
		c := Changes{Now: time.Now, After: time.After}
		through := make(chan int, 25)
		change := func(held time.Duration) {
			_ = c.Wait(t.Context(), uid)
			c.Took(uid, held)
			through <- 0
		}
		go func() {
			for range 20 {
				change(9 * ChangeCost) // counts as ten changes
			}
			change(250 * ChangeCost)
			change(0)
		}()
		for second, want := range []int{10, 20, 21, 21, 22} {
			synctest.Wait()
			if got := len(through); got != want {
				t.Fatalf("%d went through in %d seconds, want %d", got, second, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestChangesAreOwed checks that a user waits for the cost of earlier changes, also if other users make changes
// meanwhile.
func TestChangesAreOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Changes{Now: time.Now, After: time.After}
		change := func(uid uint32) {
			if err := c.Wait(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
		}
		change(1)
		c.Took(1, 5*time.Second)
		time.Sleep(time.Second)
		change(2)
		began := time.Now()
		change(1)
		if waited := time.Since(began); waited < 20*time.Second {
			t.Errorf("after a change of 5 s the next waited %v", waited)
		}
		time.Sleep(time.Minute)
		change(3)
		if n := len(c.users); n != 1 {
			t.Errorf("%d users are remembered, of whom one has changed something lately", n)
		}
	})
}
