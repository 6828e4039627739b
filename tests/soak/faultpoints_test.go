package soak

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file kills the daemon at the fault points in its source, while scene.act does one of each operation.

const mib = 1 << 20

var faultPointInSource = regexp.MustCompile(`faults\.At\("([^"]+)"\)`)

// faultPoints returns the names of the fault points in the source, without those of cgroups' jobs, of their limits in a driver, and of
// suspended jobs: tests/bindings, tests/secondwall and tests/evict have them.
func faultPoints(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{"daemon", "shim", "internal/statefile"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range faultPointInSource.FindAllSubmatch(text, -1) {
				if name := string(m[1]); !strings.Contains(name, "binding") && !strings.Contains(name, "suspension") && !strings.HasPrefix(name, "wall.") {
					names = append(names, name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestShippedWithoutFaultPoints: the installed daemon has no fault points.
func TestShippedWithoutFaultPoints(t *testing.T) {
	t.Parallel()
	shipped, err := os.ReadFile(rig.Build(t, "gpuarbd"))
	if err != nil {
		t.Fatal(err)
	}
	armed, err := os.ReadFile(rig.Build(t, "faults/gpuarbd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(faultPoints(t), "GPUARB_FAULT") {
		if bytes.Contains(shipped, []byte(name)) {
			t.Errorf("%s is in the shipped binary", name)
		}
		if !bytes.Contains(armed, []byte(name)) {
			t.Errorf("%s is not in the other one: this test sees nothing", name)
		}
	}
}

// scene is a machine on which every operation with a fault point happens.
type scene struct {
	t              *testing.T
	m              *rig.Machine
	k              *keeper
	kept           *rig.Program // its job has 300 MiB, and it holds 100
	lender, waiter *rig.Program
}

func newScene(t *testing.T, life time.Duration) *scene {
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Life: life, Binary: rig.Build(t, "faults/gpuarbd"), Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_loss = \"closed\"\non_full = \"wait\"\nwait_timeout = \"max\"\ndeadlock_grace = \"10m\"\n" +
			"[[device]]\nmatch.index = 0\ncontext_reserve = 0\n"}) // room for credit does not depend on when the device is read
	s := &scene{t: t, m: m, kept: run(m, "--memory", "300M"), lender: preload(m), waiter: preload(m)}
	s.kept.Want("alloc kept 100M", "ok")
	s.k = keep(t, m)
	return s
}

// run starts a program under `gpuarb run`.
func run(m *rig.Machine, args ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Gpuarb(append(append([]string{"run"}, args...), "--", rig.Build(m.T, "programs/cudaprog-dlsym"), "-")...))
}

// preload starts a program with the bare preload.
func preload(m *rig.Machine) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Command(m.PreloadEnv(), rig.Build(m.T, "programs/cudaprog-dlsym"), "-"))
}

// act does one of each operation. A job and a bare process begin and end. Bytes are granted, lent,
// reclaimed, waited for, reported and taken back. Streams and contexts come and go, and limits
// change.
func (s *scene) act() {
	s.t.Helper()
	guest, job := s.begin(), s.begin("--memory", "64M", "--streams", "2")
	job.Want("alloc a 20M", "ok")
	brim(s.t, job, 20*mib, 64*mib)
	for range 2 {
		guest.Want("stream s", "ok")
		guest.Want("context c", "ok")
		guest.Want("alloc small 1000", "ok")
		guest.Want("free small", "ok")
		guest.Want("destroy c", "ok")
		guest.Want("streamdestroy s", "ok")
	}
	guest.Want("primary p", "ok") // a second context
	s.lender.Want("alloc big 500M", "ok")
	s.lender.Want("free big", "ok") // becomes its credit
	guest.Want("alloc much 600M", "ok")
	s.waiter.Tell("alloc w 450M")
	rig.Eventually(s.t, "a request waits", func() bool { return s.queued() == 1 })
	guest.Want("free much", "ok")
	s.waiter.Expect("alloc w ok")
	s.waiter.Want("free w", "ok")
	s.lender.Want("alloc big 300M", "ok")
	s.lender.Want("free big", "ok")
	s.limit(s.lender, "memory.max=200M")
	brim(s.t, s.lender, 0, 200*mib)
	s.limit(s.lender, "memory.max=max")
	guest.End()
	job.End()
	rig.Eventually(s.t, "the guests are gone", func() bool { return s.leases() == 3 })
}

// begin starts a program under `gpuarb run`.
func (s *scene) begin(args ...string) *rig.Program {
	s.t.Helper()
	return s.m.Interact(again(s.m, append(args, "--", rig.Build(s.t, "programs/cudaprog-dlsym"), "-")...))
}

// queued and leases count rows of the daemon's tables. The daemon may die of the request.
func (s *scene) queued() int { return len(s.text("queue")) }
func (s *scene) leases() int { return len(s.text("ps")) }

// text returns the lines that a command of gpuarb prints, without the header.
func (s *scene) text(command string) []string {
	s.t.Helper()
	for range 100 {
		r := rig.Run(s.t, s.m.Gpuarb(command))
		if lines := strings.Split(strings.TrimSpace(r.Stdout), "\n"); r.Code == 0 {
			return lines[1:]
		}
	}
	s.t.Fatalf("gpuarb %s fails", command)
	return nil
}

// limit sets a program's limit, and repeats the command if the daemon died of it.
func (s *scene) limit(p *rig.Program, to string) {
	s.t.Helper()
	pid := fmt.Sprint(p.PID())
	rig.Eventually(s.t, "the limit is set", func() bool { return rig.Run(s.t, s.m.Gpuarb("limit", pid, to)).Code == 0 })
}

// dieAt kills the daemon at each of the named fault points, when it comes there for the nth time. rare
// allows that the daemon comes there less often.
func dieAt(t *testing.T, names []string, nth int, rare bool) {
	s := newScene(t, bounded.Lifetime+time.Duration(len(names))*bounded.Patience)
	for _, name := range names {
		deaths := s.k.died()
		s.k.again(fmt.Sprintf("GPUARB_FAULT=%s:%d", name, nth))
		for _, p := range []*rig.Program{s.kept, s.lender, s.waiter} {
			p.Ask("info") // resumes its session
		}
		s.act()
		switch died := s.k.died() > deaths; {
		case !died && !rare:
			t.Error("no operation of the test reaches this fault point")
		case !died:
			s.k.again()
		}
		s.k.ready()
		settle(t, s.m, s.kept, s.lender, s.waiter)
		brim(t, s.kept, 100*mib, 300*mib)
		if t.Failed() {
			t.Fatalf("the daemon had to die at %s, pass %d", name, nth)
		}
	}
	t.Logf("%d fault points, pass %d: the daemon died at %d of them", len(names), nth, s.k.died())
	s.k.stop()
	gone(t, s.m, s.kept, s.lender, s.waiter)
}

// TestDiesAtEachFaultPoint kills the daemon once at each fault point in the source.
func TestDiesAtEachFaultPoint(t *testing.T) {
	t.Parallel()
	const groups = 4
	all := faultPoints(t)
	if len(all) < 40 {
		t.Fatalf("only %d fault points", len(all))
	}
	for g := range groups {
		var names []string
		for i := g; i < len(all); i += groups {
			names = append(names, all[i])
		}
		t.Run(fmt.Sprint(g), func(t *testing.T) {
			t.Parallel()
			dieAt(t, names, 1, false)
		})
	}
}
