package gpufs

import "testing"

// This file checks that each file and folder has an inode number and generation of its own, by a walk through the
// tree without a mount.

// TestIdentities checks that no two nodes of the tree share an inode number and generation.
func TestIdentities(t *testing.T) {
	b := newBuilder(0, Options{SelfOf: func(uint32) (int, bool) { return 1, true }, Metrics: writeMetrics})
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
