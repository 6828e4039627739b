package upgrade

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file replaces daemons under programs of both versions. nothing_lost_test.go checks reservations, changed limits and the queue.

const mib = 1 << 20

// release is the folder of one version: the daemon, the command and the library that are installed together.
type release string

const (
	before release = "previous/"
	now    release = ""
)

func (r release) path(t *testing.T, name string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join("..", "..", "build", string(r), name)); err != nil {
		t.Fatalf("%v: run `make test-build previous` first", err)
	}
	return rig.Build(t, string(r)+name)
}

func (r release) String() string {
	if r == before {
		return "the version before"
	}
	return "this version"
}

// program is a program that runs while daemons are replaced.
type program struct {
	*rig.Program
	what    string
	limit   uint64 // the most bytes that it may hold, together with the programs that share its budget
	held    uint64 // bytes that these programs hold
	streams int    // cap on its streams; 0: not tested
}

// brim checks that a program gets the last byte inside its limit and not one byte more.
func (p *program) brim(t *testing.T, when string) {
	t.Helper()
	left := p.limit - p.held
	for _, step := range [][2]string{
		{fmt.Sprintf("alloc more %d", left+1), "err 2"}, {fmt.Sprintf("alloc last %d", left), "ok"},
		{"alloc more 1", "err 2"}, {"free last", "ok"},
	} {
		if got := p.Ask(step[0]); got != step[1] {
			t.Errorf("%s: %s: of %d bytes %d are held, and %s: %s", when, p.what, p.limit, p.held, step[0], got)
		}
	}
	for i := range p.streams {
		p.Want(fmt.Sprintf("stream s%d", i), "ok")
	}
	if p.streams > 0 && p.Ask("stream more") != "err 2" {
		t.Errorf("%s: %s: more than %d streams", when, p.what, p.streams)
	}
	for i := range p.streams {
		p.Want(fmt.Sprintf("streamdestroy s%d", i), "ok")
	}
}

// scene is a machine with programs of both versions.
type scene struct {
	t        *testing.T
	m        *rig.Machine
	programs []*program
	busy     []*rig.Program
	rounds   int
}

func newScene(t *testing.T, first release) *scene {
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Binary: first.path(t, "gpuarbd"),
		Sim:    []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_loss = \"closed\"\nmemory.max = \"600M\"\n"})
	return &scene{t: t, m: m}
}

// run starts a program under `gpuarb run` of a version.
func (s *scene) run(r release, args ...string) *rig.Program {
	s.t.Helper()
	args = append(append([]string{"run"}, args...), "--", rig.Build(s.t, "programs/cudaprog-dlsym"), "-")
	cmd := s.m.Command(append(s.m.Env(), "GPUARB_SOCKET="+s.m.Socket), r.path(s.t, "gpuarb"), args...)
	return s.m.Interact(cmd)
}

// preload starts a program with the library of a version.
func (s *scene) preload(r release, env ...string) *rig.Program {
	s.t.Helper()
	env = append(append(s.m.Env(), "GPUARB_SOCKET="+s.m.Socket, "LD_PRELOAD="+r.path(s.t, "libgpuarb.so")), env...)
	return s.m.Interact(s.m.Command(env, rig.Build(s.t, "programs/cudaprog-dlsym"), "-"))
}

// add starts a program for each kind of limit that a daemon could lose, with a release of the
// library and under the current daemon.
func (s *scene) add(r release) {
	s.t.Helper()
	from := fmt.Sprintf("begun with the library of %v", r)
	add := func(p *rig.Program, what string, limit, own, held uint64, streams int) {
		p.Want(fmt.Sprintf("alloc kept %d", own), "ok")
		s.programs = append(s.programs, &program{p, what + ", " + from, limit, held, streams})
	}
	add(s.run(r, "--memory", "300M", "--streams", "3"), "a job", 300*mib, 100*mib, 100*mib, 3)
	each := s.run(r, "--memory", "200M", "--per-process")
	add(each, "a job of single budgets", 200*mib, 50*mib, 50*mib, 0)
	token := fmt.Sprintf("GPUARB_JOB=%x", s.job(400*mib))
	add(s.preload(r, token), "one of two", 400*mib, 150*mib, 250*mib, 0)
	add(s.preload(r, token), "the other of two", 400*mib, 100*mib, 250*mib, 0)
	lowered := s.preload(r)
	add(lowered, "one whose limit was lowered", 250*mib, 20*mib, 20*mib, 0)
	if got := rig.Run(s.t, s.m.Gpuarb("limit", fmt.Sprint(lowered.PID()), "memory.max=250M")); got.Code != 0 {
		s.t.Fatalf("gpuarb limit: %s", got.Stderr)
	}
	add(s.preload(r, "GPUARB_MEMORY=120M"), "one that chose for itself", 120*mib, 60*mib, 60*mib, 0)
	add(s.preload(r), "one of the rule's", 600*mib, 7*mib, 7*mib, 0)
	s.busy = append(s.busy, s.run(r, "--memory", "100M"))
}

// job opens a job in this process.
func (s *scene) job(memory uint64) [16]byte {
	s.t.Helper()
	c, err := ipc.Dial(s.t.Context(), s.m.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	rep, err := c.OpenJob(s.t.Context(), ipc.JobOpenRequest{Memory: memory, Min: ipc.NoLimit})
	if err != nil {
		s.t.Fatal(err)
	}
	return rep.Job
}

// swap ends the daemon while the busy programs work, and starts another release.
func (s *scene) swap(to release) {
	s.t.Helper()
	s.rounds++
	var wg sync.WaitGroup
	for i, p := range s.busy {
		wg.Go(func() {
			if got := p.Ask(fmt.Sprintf("threads 3 120 60M %d", 1000*s.rounds+i+1)); !strings.HasPrefix(got, "ok ") {
				s.t.Errorf("to %v: a busy program: %s\n%s", to, got, p.Stderr())
			}
		})
	}
	if s.rounds%2 == 0 {
		s.m.Stop()
	} else {
		s.m.Kill()
	}
	s.m.Use(to.path(s.t, "gpuarbd"))
	s.m.Start()
	bounded.Within(s.t, "the busy programs end their round", wg.Wait)
}

// settle lets every program resume its session, and compares all counts.
func (s *scene) settle(when string) {
	s.t.Helper()
	wrong := ""
	s.t.Cleanup(func() {
		if wrong != "" {
			s.t.Logf("%s: %s", when, wrong)
		}
	})
	rig.Eventually(s.t, when+": the counts agree", func() bool {
		for _, p := range s.programs {
			p.Ask("info") // makes the program resume its session, unless its lease page still has open credit
		}
		for _, p := range s.busy {
			p.Ask("info")
		}
		wrong = s.m.Disagreement()
		return wrong == ""
	})
	for _, p := range s.programs {
		p.brim(s.t, when)
	}
	if n := len(s.m.Snapshot().Leases); n != len(s.programs)+len(s.busy) {
		s.t.Errorf("%s: %d leases of %d programs", when, n, len(s.programs)+len(s.busy))
	}
}

// end ends all programs, and checks that nothing remains.
func (s *scene) end() {
	s.t.Helper()
	for _, p := range s.programs {
		p.End()
	}
	for _, p := range s.busy {
		p.End()
	}
	s.m.AllGone()
	if n := s.m.Snapshot().Stats.ClampedWords; n != 0 {
		s.t.Errorf("%d credit words of honest programs were clamped", n)
	}
}

// forthAndBack starts with the previous daemon, and changes to the present one and back the given
// number of times.
func forthAndBack(t *testing.T, times int) {
	s := newScene(t, before)
	s.add(before)
	s.add(now) // these begin after the library was replaced, and before the daemon is
	s.settle("at first")
	for i := range times {
		s.swap(now)
		s.settle(fmt.Sprintf("forth %d", i+1))
		if i == 0 { // programs that began under the present daemon must survive the way back, too
			s.add(now)
			s.add(before)
		}
		s.swap(before)
		s.settle(fmt.Sprintf("back %d", i+1))
	}
	s.swap(now)
	s.settle("at last")
	s.end()
}

// TestForthAndBack replaces the daemon under programs of both versions, back, and again.
func TestForthAndBack(t *testing.T) {
	t.Parallel()
	forthAndBack(t, 1)
}

// TestWithoutTheCommit: in a clone without the previous version's commit, the message says what to do.
func TestWithoutTheCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shallow := filepath.Join(dir, "clone")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	git := bounded.Command(t, bounded.Patience, "git", "-c", "safe.directory=*", "clone", "-q", "--depth=1", "file://"+root, shallow)
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	previous, err := os.ReadFile("previous")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("build.sh")
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(shallow, "tests", "upgrade", "build.sh")
	if err := os.MkdirAll(filepath.Dir(mine), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := bounded.WriteProgram(mine, script); err != nil {
		t.Fatal(err)
	}
	r := rig.Run(t, bounded.Command(t, bounded.Patience, mine, strings.TrimSpace(string(previous)), filepath.Join(dir, "out")))
	if r.Code != 1 || !strings.Contains(r.Stderr, "git fetch --unshallow") {
		t.Errorf("exit status %d, %s", r.Code, r.Stderr)
	}
}

// TestStreamsForthAndBack: daemons of both versions count the streams of a program that counts them itself in its lease page.
func TestStreamsForthAndBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, now)
	p := s.run(now, "--streams", "5")
	agreed := func(when string) {
		t.Helper()
		rig.Eventually(t, when+": the counts agree", func() bool {
			p.Ask("info") // resumes its session
			return s.m.Disagreement() == ""
		})
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		p.Want("stream "+name, "ok")
	}
	p.Want("streamdestroy d", "ok")
	s.swap(before)
	agreed("back")
	p.Want("stream d", "ok")
	p.Want("stream e", "ok")
	p.Want("stream f", "err 2")
	p.Want("streamdestroy a", "ok")
	s.swap(now)
	agreed("forth")
	p.Want("stream a", "ok")
	p.Want("stream f", "err 2")
	for _, name := range []string{"a", "b", "c"} {
		p.Want("streamdestroy "+name, "ok")
	}
	s.swap(before)
	agreed("back again")
	p.End()
	s.m.AllGone()
}
