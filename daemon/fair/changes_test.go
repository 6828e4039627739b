package fair

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestChangesOfAUserWait: of what a user writes in a loop a hundred go through in a second, whoever
// else writes, and the others one by one as the seconds pass.
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
