package arbiter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// A limit that root sets for a cgroup holds for all processes in it and below it, together with the limits of outer cgroups.
// invariants_test.go sets random limits of cgroups, and accounting/cgroup_test.go compares paths.

// runsIn opens a process of a user in a cgroup.
func (w *world) runsIn(cgroup string, uid uint32) *client {
	p := w.process(uid, "train")
	p.Cgroup = cgroup
	return w.clientOf(p, 0, 0)
}

func (w *world) limitCgroup(of string, most accounting.Size) {
	w.t.Helper()
	if err := w.arb.SetCgroupLimits(w.now, of, rules.Change{Device: rules.AllDevices, Max: &most}); err != nil {
		w.t.Fatal(err)
	}
}

// TestCgroupsNest: the limits of nested cgroups all hold, whichever was set first. Removing one leaves the others.
func TestCgroupsNest(t *testing.T) {
	for name, order := range map[string][]string{"outside in": {"/a", "/a/b", "/a/b/c"}, "inside out": {"/a/b/c", "/a/b", "/a"}, "the middle last": {"/a/b/c", "/a", "/a/b"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, exact(unlimited()), 100)
			inner, middle, outer := w.runsIn("/a/b/c", bob), w.runsIn("/a/b", bob), w.runsIn("/a", bob)
			most := map[string]accounting.Bytes{"/a": 30, "/a/b": 20, "/a/b/c": 10}
			for _, of := range order {
				w.limitCgroup(of, size(most[of]))
			}
			refused := func(c *client, n accounting.Bytes, by string) {
				t.Helper()
				if o := c.alloc(n); o.Granted || !strings.Contains(o.Explain+";", "set for cgroup "+by+";") {
					t.Errorf("%d bytes, by %s: %+v", n, by, o)
				}
			}
			inner.must(10)
			refused(inner, 1, "/a/b/c")
			middle.must(10)
			refused(middle, 1, "/a/b")
			outer.must(10)
			refused(outer, 1, "/a")
			w.limitCgroup("/a/b", unlimited())
			refused(middle, 1, "/a")
			inner.free(5)
			middle.must(5)
			refused(inner, 1, "/a")
			w.limitCgroup("/a", unlimited())
			inner.must(5)
			refused(inner, 1, "/a/b/c")
		})
	}
}

// TestCgroupWait: a request that waits for memory of other processes in its cgroup is served when they free it. It does not block programs
// elsewhere. A process in another cgroup than its job counts in its own cgroup.
func TestCgroupWait(t *testing.T) {
	p := exact(unlimited())
	p.Defaults.OnFull = rules.OnFullWait
	w := newWorld(t, p, 100)
	w.limitCgroup("/a", size(50))
	job := w.process(bob, "gpuarb")
	info, err := w.arb.OpenJob(w.now, arbiter.JobRequest{Process: job})
	if err != nil {
		t.Fatal(err)
	}
	inside := w.process(bob, "train")
	inside.Cgroup = "/a/box"
	holds, waits := w.clientOf(inside, info.ID, 0), w.runsIn("/a", eve)
	holds.must(40)
	o := waits.alloc(20)
	if o.Waiting == 0 {
		t.Fatalf("%+v", o)
	}
	if n := w.arb.Notice(w.now, o.Waiting); n.Position != 1 || !strings.Contains(n.Text, "of the 50 bytes that root set for cgroup /a, 10 bytes free; holds: bob's train[") {
		t.Errorf("%+v", n)
	}
	later := w.runsIn("/a/box", ann)
	if o := later.alloc(5); o.Waiting == 0 {
		t.Errorf("passed who waits: %+v", o)
	}
	w.runsIn("/b", ann).must(40)
	holds.free(10)
	w.arb.Freed(w.now, holds.lease)
	w.arb.Tick(w.now)
	granted := 0
	for _, d := range w.arb.Decisions() {
		if d.Granted {
			granted++
		}
	}
	if granted != 1 {
		t.Errorf("%d were served", granted)
	}
}

// TestCgroupLimitRefused: a change of a cgroup's limit that is invalid, or made by another user, is refused with a reason.
func TestCgroupLimitRefused(t *testing.T) {
	w := newWorld(t, exact(unlimited()), 100)
	most, n := size(10), 3
	for name, c := range map[string]struct {
		of     string
		change rules.Change
		want   error
	}{
		"a user":         {"/a", rules.Change{Max: &most, UID: bob}, rules.ErrPermission},
		"memory.min":     {"/a", rules.Change{Min: &most}, rules.ErrRange},
		"streams.max":    {"/a", rules.Change{Streams: &n}, rules.ErrRange},
		"the root":       {"/", rules.Change{Max: &most}, rules.ErrRange},
		"no slash":       {"a", rules.Change{Max: &most}, rules.ErrRange},
		"a slash behind": {"/a/", rules.Change{Max: &most}, rules.ErrRange},
		"dots":           {"/a/../b", rules.Change{Max: &most}, rules.ErrRange},
		"outside":        {"/../b", rules.Change{Max: &most}, rules.ErrRange},
		"a line":         {"/a\nb", rules.Change{Max: &most}, rules.ErrRange},
		"too long":       {"/" + strings.Repeat("a", 511), rules.Change{Max: &most}, rules.ErrRange},
		"no device":      {"/a", rules.Change{Device: 7, Max: &most}, arbiter.ErrNoDevice},
	} {
		if err := w.arb.SetCgroupLimits(w.now, c.of, c.change); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCgroupsNestDeeply: the limit of each of many nested cgroups holds, also that of the outermost.
func TestCgroupsNestDeeply(t *testing.T) {
	w := newWorld(t, waiting(), 1000)
	deep := strings.Repeat("/x", 40)
	for i := range 40 {
		w.limitCgroup(deep[:2*i+2], size(accounting.Bytes(100+i)))
	}
	w.limitCgroup("/x", size(50))
	inside := func() *client {
		p := w.process(bob, "inside")
		p.Cgroup = deep
		return w.clientOf(p, 0, 0)
	}
	first, second, outside := inside(), inside(), w.client(0, 0)
	first.must(50)
	id := second.wait(1)
	outside.must(900)
	first.free(1)
	w.served(id)
}
