package statefile

import (
	"path/filepath"
	"sync"
	"testing"
)

// TestPromised: requests that promised what they take have no memory allocated for them under
// the lock, however many there are at once and whoever comes first.
func TestPromised(t *testing.T) {
	f, _, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const requests = 10 * spare
	var lock sync.Mutex
	var promised, done sync.WaitGroup
	promised.Add(requests / 2)
	for n := range requests {
		done.Go(func() {
			if n%2 == 0 { // these all promise before any of them takes
				f.Promise(1)
				promised.Done()
				promised.Wait()
			} else {
				f.Promise(1)
			}
			defer f.Kept(1)
			lock.Lock()
			defer lock.Unlock()
			_, s, err := f.Sessions.New()
			if err != nil {
				t.Error(err)
				return
			}
			s.Token[0]++
			for range most {
				_, _, one := f.Jobs.New()
				_, _, two := f.Tickets.New()
				_, _, three := f.Limits.New()
				_, _, four := f.Threads.New()
				if one != nil || two != nil || three != nil || four != nil {
					t.Error(one, two, three, four)
				}
			}
			if _, _, err := f.Leases.New(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	if late := f.Late(); late != 0 {
		t.Errorf("memory was allocated %d times under the lock", late)
	}
}

// TestNotPromised: who takes more than was promised gets it all the same.
func TestNotPromised(t *testing.T) {
	f, _, err := Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Promise(0)
	f.Kept(0)
	for f.Late() == 0 {
		i, _, err := f.Jobs.New()
		if err != nil {
			t.Fatal(err)
		}
		f.Jobs.Commit(i)
	}
	if _, _, err := f.Sessions.New(); err != nil || f.Volatile() != nil {
		t.Error(err, f.Volatile())
	}
}
