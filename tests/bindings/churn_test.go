package bindings

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file makes and removes cgroups at random, opens their bindings, fills these with programs, kills the programs, and kills the daemon
// in between. The test computes the expected bytes itself, and compares them with the driver's count.

// churn is a machine whose cgroups come and go.
type churn struct {
	t      *testing.T
	m      *rig.Machine
	u      *rig.OtherUser
	random *rand.Rand
	roots  []*rig.Cgroup // one in each hierarchy
	boxes  []*box        // those around others first
	made   int           // number of cgroups that were made
	opened int           // number of bindings that were opened
	filled int           // number of programs that took all bytes that were left for them
}

// box is a cgroup, with a binding or without.
type box struct {
	*rig.Cgroup
	around   *box
	root     int    // index of its hierarchy
	budget   uint64 // 0: it has no binding
	min      uint64 // reserved for its binding
	programs []*filler
}

// filler is a program in a box. It belongs to the deepest binding around it at its start.
type filler struct {
	*rig.Program
	pid  int
	held uint64
	of   *box // the box whose binding it belongs to
}

// hierarchies are the cgroup hierarchies of this machine that a test can mount: of version 2, of version 1, and both at once.
var hierarchies = map[string][]func(*rig.Machine) *rig.Cgroup{
	"v2":     {(*rig.Machine).Cgroup},
	"v1":     {(*rig.Machine).CgroupV1},
	"hybrid": {(*rig.Machine).Cgroup, (*rig.Machine).CgroupV1},
}

// churnIn takes random steps until it has made as many cgroups as total says. At most 8 cgroups exist at a time. A step makes a cgroup,
// opens its binding, fills it, kills its programs, removes it, or restarts the daemon. At the end no byte and no binding is left.
func churnIn(t *testing.T, total int) {
	for name, mounts := range hierarchies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			c := &churn{t: t, random: rand.New(rand.NewPCG(seed, 0))}
			c.m = rig.New(t, rig.Options{Devices: "1G", NoMount: true, Quiet: true, Life: bounded.Lifetime + time.Duration(total)*2*time.Second, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
				Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"})
			c.u = c.m.OtherUser(anne)
			for _, mount := range mounts {
				c.roots = append(c.roots, mount(c.m))
			}
			defer func() {
				t.Logf("seed %d: %d cgroups, %d bindings, %d programs were full", seed, c.made, c.opened, c.filled)
			}()
			for c.made < total && !t.Failed() {
				c.step()
			}
			for len(c.boxes) > 0 {
				c.remove(len(c.boxes) - 1)
			}
			c.nothingLeft()
			c.m.Kill()
			c.m.Start()
			c.nothingLeft()
		})
	}
}

// step does one thing at random.
func (c *churn) step() {
	c.t.Helper()
	switch n := c.random.IntN(40); {
	case n == 0:
		c.m.Kill()
		c.m.Start()
	case n < 14 && len(c.boxes) < 8, len(c.boxes) == 0:
		c.make()
	case n < 24:
		c.open(c.boxes[c.random.IntN(len(c.boxes))])
	case n < 31:
		c.fill(c.boxes[c.random.IntN(len(c.boxes))])
	case n < 33:
		c.kill(c.boxes[c.random.IntN(len(c.boxes))])
	default:
		c.remove(c.random.IntN(len(c.boxes)))
	}
}

// make makes a cgroup in a random box, or at the top of a hierarchy.
func (c *churn) make() {
	c.t.Helper()
	b := &box{root: c.random.IntN(len(c.roots))}
	parent := c.roots[b.root]
	if n := len(c.boxes); n > 0 && c.random.IntN(2) == 0 {
		b.around = c.boxes[c.random.IntN(n)]
		b.root, parent = b.around.root, b.around.Cgroup
	}
	b.Cgroup = c.m.Below(parent, fmt.Sprintf("box%d", c.made))
	c.made++
	c.boxes = append(c.boxes, b)
}

// open opens the binding of a box that has none, unless a program runs in the box or below it.
func (c *churn) open(b *box) {
	c.t.Helper()
	if b.budget > 0 || c.running(b) {
		return
	}
	b.budget = uint64(1+c.random.IntN(32)) * mib
	args := []string{"open", "--cgroup", b.Path, "--memory", fmt.Sprint(b.budget), "--name", nameOf(b)}
	if b.outer() == nil && c.random.IntN(3) == 0 { // a binding around it may have no room for a reservation
		b.min = min(b.budget, 2*mib)
		args = append(args, "--min", fmt.Sprint(b.min))
	}
	job(c.t, c.m, 0, "", args...)
	c.opened++
}

// nameOf returns the name of a box's binding.
func nameOf(b *box) string { return filepath.Base(b.Path) }

// running reports whether a program runs in the box or below it.
func (c *churn) running(b *box) bool {
	for _, x := range c.boxes {
		if len(x.programs) > 0 && x.isIn(b) {
			return true
		}
	}
	return false
}

func (b *box) isIn(outer *box) bool {
	for ; b != nil; b = b.around {
		if b == outer {
			return true
		}
	}
	return false
}

// outer returns the deepest box with a binding around a box; nil: there is none.
func (b *box) outer() *box {
	for b = b.around; b != nil && b.budget == 0; b = b.around {
	}
	return b
}

// load returns the bytes that the programs in a binding hold and the bindings inside it reserve. Its own reservation does not count. held
// is what programs hold.
func (c *churn) load(x *box) (load, held uint64) {
	for _, b := range c.boxes {
		for _, p := range b.programs {
			if p.of == x {
				load, held = load+p.held, held+p.held
			}
		}
		if b.budget > 0 && b.outer() == x {
			l, h := c.load(b)
			load, held = load+max(l, b.min), held+h
		}
	}
	return load, held
}

// room returns how many bytes a new program in a box can have. bound is the deepest binding around the program; nil: there is none.
func (c *churn) room(b *box) (left uint64, bound *box) {
	if bound = b; b.budget == 0 {
		bound = b.outer()
	}
	left = ^uint64(0)
	slack := uint64(0) // unused bytes of reservations inside x, which the load of x includes
	for x := bound; x != nil; x = x.outer() {
		load, held := c.load(x)
		here := min(slack, x.budget-min(held, x.budget))
		if load <= x.budget {
			here = slack + x.budget - load
		}
		left = min(left, here)
		slack += x.min - min(load, x.min)
	}
	return left, bound
}

// fill starts a program in a box with a binding around it. The program takes half of the bytes that are left, or all of them and not one
// more.
func (c *churn) fill(b *box) {
	c.t.Helper()
	left, bound := c.room(b)
	if bound == nil {
		return
	}
	p := &filler{Program: c.u.BareIn(b.Cgroup), of: bound}
	p.pid = p.PID()
	b.programs = append(b.programs, p)
	p.Want(fmt.Sprintf("alloc more %d", left+1), errOutOfMemory)
	if p.held = left; c.random.IntN(3) == 0 {
		p.held = left / 2
	}
	if p.held > 0 {
		p.Want(fmt.Sprintf("alloc all %d", p.held), "ok")
	}
	if p.held == left {
		p.Want("alloc more 1", errOutOfMemory)
		c.filled++
	}
	for _, l := range c.m.Snapshot().Leases {
		if want := nameOf(bound); l.PID == p.pid && l.JobName != want {
			c.t.Errorf("process %d is of job %q, not of %s", p.pid, l.JobName, want)
		}
	}
	if got := c.m.HeldBy(p.pid, 0).Bytes; got != p.held {
		c.t.Errorf("the driver counts %d bytes of process %d, want %d", got, p.pid, p.held)
	}
}

// kill kills the programs in a box, and waits until the daemon has noticed.
func (c *churn) kill(b *box) {
	c.t.Helper()
	for _, p := range b.programs {
		p.Signal(syscall.SIGKILL)
		p.Wait()
	}
	b.programs = nil
	rig.Eventually(c.t, "their leases are gone", func() bool {
		alive := 0
		for _, x := range c.boxes {
			alive += len(x.programs)
		}
		return len(c.m.Snapshot().Leases) == alive
	})
}

// remove kills the programs in a box and below it, and removes these cgroups, the inner ones first. It closes about half of the bindings by
// command before. The daemon closes the other bindings when their cgroups are gone.
func (c *churn) remove(i int) {
	c.t.Helper()
	outer := c.boxes[i]
	for i := len(c.boxes) - 1; i >= 0; i-- {
		b := c.boxes[i]
		if !b.isIn(outer) {
			continue
		}
		c.kill(b)
		if b.budget > 0 && c.random.IntN(2) == 0 {
			job(c.t, c.m, 0, "", "close", "--cgroup", b.Path)
		}
		c.m.Remove(b.Cgroup)
		rig.Eventually(c.t, "its binding is closed", func() bool { return !named(c.m, nameOf(b)) })
		c.boxes = append(c.boxes[:i], c.boxes[i+1:]...)
	}
}

// nothingLeft checks that no binding and no byte is left, by the driver's count, and that a program gets the whole device.
func (c *churn) nothingLeft() {
	c.t.Helper()
	rig.Eventually(c.t, "no binding and no lease is left", func() bool {
		s := c.m.Snapshot()
		return len(s.Jobs)+len(s.Leases) == 0
	})
	if list := job(c.t, c.m, 0, "", "list"); strings.Contains(list, "box") {
		c.t.Errorf("gpuarb job list:\n%s", list)
	}
	if held := strings.TrimSpace(c.m.Sim("total")); held != "0" {
		c.t.Errorf("the driver holds %s bytes", held)
	}
	p := c.u.BareIn(c.roots[0])
	holds(c.t, c.m, p, "1G", 1<<30)
	p.End()
}

// TestCgroupsComeAndGo runs churnIn with a few cgroups in each kind of hierarchy. TestFullThousandCgroups runs it with a thousand.
func TestCgroupsComeAndGo(t *testing.T) {
	t.Parallel()
	churnIn(t, 25)
}
