package procfacts

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// Names of users and groups are found within a bounded time, even if the user database is slow or does not answer,
// and are kept for a while. A fake database stands for the machine's. facts_test.go asks the real one.

// fakeNames is a user database that answers when the test allows it.
type fakeNames struct {
	mu    sync.Mutex
	asked int
	name  string
	gate  chan struct{}
}

func (f *fakeNames) userName(string) (string, error) {
	f.mu.Lock()
	f.asked++
	name := f.name
	f.mu.Unlock()
	if f.gate != nil {
		<-f.gate
	}
	if name == "" {
		return "", errors.New("unknown")
	}
	return name, nil
}

func (f *fakeNames) sources() nameSources {
	return nameSources{usersDB: f.userName, groupsDB: func(gid string) (string, error) { return "g" + gid, nil }}
}

func TestNames(t *testing.T) {
	f := &fakeNames{name: "ann"}
	now := time.Unix(1000, 0)
	var mu sync.Mutex
	n := newNames(f.sources(), func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
	for range 3 {
		if got := n.user(5, namesTimeout); got != "ann" {
			t.Errorf("got %q", got)
		}
	}
	if f.asked != 1 {
		t.Errorf("asked %d times", f.asked)
	}
	if got := n.groups(7, []uint32{8, 7, 9, 8}, namesTimeout); len(got) != 3 || got[0] != "g7" || got[2] != "g9" {
		t.Errorf("groups %q", got)
	}
	// After namesTTL the name is looked up again. The old name is returned until the answer comes.
	f.mu.Lock()
	f.name, f.gate = "bob", make(chan struct{})
	f.mu.Unlock()
	mu.Lock()
	now = now.Add(namesTTL + time.Second)
	mu.Unlock()
	if got := n.user(5, namesTimeout); got != "ann" {
		t.Errorf("got %q while it is being asked", got)
	}
	close(f.gate)
	bounded.Until(t, "the new name is there", func() bool { return n.user(5, namesTimeout) == "bob" })
}

func TestNamesWithoutAnswer(t *testing.T) {
	f := &fakeNames{gate: make(chan struct{})}
	n := newNames(f.sources(), time.Now)
	var wg sync.WaitGroup
	for id := range uint32(3 * maxLookups) {
		wg.Go(func() {
			if got := n.user(id, namesTimeout); got == "" || got[0] < '0' || got[0] > '9' {
				t.Errorf("%d is called %q", id, got)
			}
		})
	}
	bounded.Within(t, "nobody waits for a name", wg.Wait)
	f.mu.Lock()
	if f.asked > maxLookups {
		t.Errorf("%d lookups are stuck", f.asked)
	}
	f.mu.Unlock()
	close(f.gate)
}

func TestNamesBounded(t *testing.T) {
	n := newNames((&fakeNames{name: "x"}).sources(), time.Now)
	for id := range uint32(2*maxNames + 10) {
		n.user(id, namesTimeout)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known[usersDB]) > maxNames {
		t.Errorf("%d names are remembered", len(n.known[usersDB]))
	}
}

// TestNamesOfASlowDatabase: a caller waits for a name that rules need. A known name survives a failed lookup. A
// lookup without an answer delays only one caller.
func TestNamesOfASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64
		var fails atomic.Bool
		takes.Store(int64(7 * namesTimeout))
		n := newNames(nameSources{usersDB: func(string) (string, error) {
			time.Sleep(time.Duration(takes.Load()))
			if fails.Load() {
				return "", errors.New("no such user, or nobody to ask")
			}
			return "ann", nil
		}}, time.Now)
		if got := n.user(5, namesPatience); got != "ann" {
			t.Errorf("user 5 is called %q by a slow database", got)
		}
		fails.Store(true)
		time.Sleep(namesTTL + 1)
		for range 3 {
			if got := n.user(5, namesPatience); got != "ann" {
				t.Errorf("user 5 is called %q when the database fails", got)
			}
			time.Sleep(7*namesTimeout + namesRetry)
		}
		began := time.Now()
		takes.Store(int64(time.Hour))
		for range 50 {
			if got := n.user(6, namesPatience); got != "6" {
				t.Errorf("user 6 is called %q", got)
			}
		}
		n.user(7, namesPatience)
		if waited := time.Since(began); waited > namesPatience+namesTimeout {
			t.Errorf("%v went by for a database that hangs", waited)
		}
		time.Sleep(time.Hour)
		takes.Store(int64(7 * namesTimeout))
		fails.Store(false)
		if got := n.user(8, namesPatience); got != "ann" {
			t.Errorf("user 8 is called %q when the database answers again", got)
		}
	})
}
