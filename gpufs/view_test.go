package gpufs

import (
	"sync"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/tests/bounded"
)

// slowView counts who is inside at once, and numbers its answers.
type slowView struct {
	mu     sync.Mutex
	inside int
	most   int
	number int64
}

func (v *slowView) Snapshot() accounting.Snapshot {
	v.mu.Lock()
	v.inside++
	v.most = max(v.most, v.inside)
	v.number++
	n := v.number
	v.mu.Unlock()
	time.Sleep(time.Millisecond)
	v.mu.Lock()
	v.inside--
	v.mu.Unlock()
	return accounting.Snapshot{TimeUnixNano: n}
}

// TestShared checks that readers share snapshots, and that none gets one that was
// begun before he asked.
func TestShared(t *testing.T) {
	v := &slowView{}
	s := &snapshots{view: v}
	var wg sync.WaitGroup
	const readers, rounds = 32, 20
	for range readers {
		wg.Go(func() {
			for range rounds {
				v.mu.Lock()
				begun := v.number
				v.mu.Unlock()
				if got := s.fresh().TimeUnixNano; got <= begun {
					t.Errorf("answer %d, where %d was begun before", got, begun)
				}
				s.recent()
			}
		})
	}
	bounded.Within(t, "all have their snapshot", wg.Wait)
	if v.most != 1 {
		t.Errorf("%d snapshots at once", v.most)
	}
	if v.number > readers*rounds/4 {
		t.Errorf("%d snapshots for %d readings: they are not shared", v.number, readers*rounds)
	}
}

// TestIdentities checks that no two nodes of the tree share an inode number and generation.
func TestIdentities(t *testing.T) {
	b := newBuilder(0, Options{SelfOf: func(uint32) (int, bool) { return 1, true }})
	s := &snapshot{Snapshot: sample()}
	seen := map[[2]uint64]string{}
	var walk func(path string, d *directory)
	walk = func(path string, d *directory) {
		entries, ok := d.list(s)
		if !ok {
			t.Errorf("%s is gone", path)
		}
		for _, e := range entries {
			key := [2]uint64{e.id.ino(), e.id.gen()}
			if other, twice := seen[key]; twice || e.id.ino()>>63 != 0 || e.id.ino() <= 1 {
				t.Errorf("%s/%s has the identity %v of %s", path, e.name, key, other)
			}
			seen[key] = path + "/" + e.name
			if found, ok := d.entry(s, e.name); !ok || found.id != e.id {
				t.Errorf("%s/%s is listed and not found", path, e.name)
			}
			if e.dir != nil {
				walk(path+"/"+e.name, e.dir)
			}
		}
	}
	walk("", b.root())
	if len(seen) < 100 {
		t.Errorf("only %d names", len(seen))
	}
}
