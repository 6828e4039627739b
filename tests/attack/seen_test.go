package attack

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs keep their exact limits when the daemon has lost its state file, because the new
// daemon reads the limits from their lease pages. A client that writes false limits there can only reduce its own.
// state_test.go has the damage to the file itself.

// lost are the ways in which a daemon can lose its record of what clients were given.
var lost = map[string]func(t *testing.T, path string){
	"of a later version":    func(t *testing.T, path string) { overwriteFile(t, path, 8, []byte{255}) },
	"of an earlier version": func(t *testing.T, path string) { overwriteFile(t, path, 8, []byte{2}) },
	"removed":               func(t *testing.T, path string) { check(t, os.Remove(path)) },
	"empty":                 func(t *testing.T, path string) { check(t, os.Truncate(path, 0)) },
	"cut":                   func(t *testing.T, path string) { check(t, os.Truncate(path, 5000)) },
	"zeros": func(t *testing.T, path string) {
		info, err := os.Stat(path)
		check(t, err)
		check(t, os.Truncate(path, 0))
		check(t, os.Truncate(path, info.Size()))
	},
	"somebody's letter": func(t *testing.T, path string) { check(t, os.WriteFile(path, []byte("Dear daemon,"), 0o600)) },
	"another user's":    func(t *testing.T, path string) { check(t, os.Chown(path, 65534, 65534)) },
	"open to others":    func(t *testing.T, path string) { check(t, os.Chmod(path, 0o666)) },
	"jobs of rubbish":   spoilJobs,
}

// spoilJobs writes 0, which is invalid, over the job number of the first 64 job records.
func spoilJobs(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	check(t, err)
	at, size := int64(4096), int64(text[16])|int64(text[17])<<8
	for i := range int64(64) {
		overwriteFile(t, path, at+i*size+8, make([]byte, 8)) // its number
	}
}

// limited is a program under a limit, of its own or of a job that it shares. Both figures are bytes: holds is what all
// programs under that limit hold together.
type limited struct {
	p     *rig.Program
	holds uint64
	limit uint64
}

// brim checks that a program gets the last byte inside its limit and not one byte more.
func (l *limited) brim(t *testing.T, when string) {
	t.Helper()
	left := l.limit - l.holds
	if got := l.p.Ask(fmt.Sprintf("alloc more %d", left+1)); got != "err 2" {
		t.Errorf("%s: one byte over the limit of %d: %s", when, l.limit, got)
		if got == "ok" {
			l.p.Ask("free more")
		}
	}
	if got := l.p.Ask(fmt.Sprintf("alloc last %d", left)); got != "ok" {
		t.Errorf("%s: the last byte of %d: %s", when, l.limit, got)
		return
	}
	if got := l.p.Ask("alloc more 1"); got != "err 2" {
		t.Errorf("%s: a byte beyond %d: %s", when, l.limit, got)
	}
	say(t, l.p, "free last", "ok")
}

// TestLimitsAreThosePagesShow: whatever happened to the state file, every program gets exactly as many bytes
// as before, neither more nor less.
func TestLimitsAreThosePagesShow(t *testing.T) {
	t.Parallel()
	for name, harm := range lost {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "another user's" && os.Geteuid() != 0 {
				t.Fatal("only root can give a file away")
			}
			m := machine(t, rig.Options{Devices: "4G,4G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			programs := crowdOfLimits(t, m)
			for round := range 2 {
				m.Kill()
				harm(t, m.Socket+".state")
				m.Start()
				for _, l := range programs {
					l.p.Ask("info") // resumes its session
				}
				for i, l := range programs {
					l.brim(t, fmt.Sprintf("round %d, program %d", round, i))
				}
			}
			m.Kill() // limits read from lease pages must survive this restart, too
			m.Start()
			for i, l := range programs {
				l.p.Ask("info")
				l.brim(t, fmt.Sprintf("at last, program %d", i))
			}
		})
	}
}

// crowdOfLimits starts programs with limits that a daemon cannot know from
// its configuration, one of each kind.
func crowdOfLimits(t *testing.T, m *rig.Machine) []*limited {
	t.Helper()
	run := func(device int, args ...string) *rig.Program {
		args = append(append([]string{"run"}, args...), "--", rig.Build(t, "programs/cudaprog-dlsym"), "--device", fmt.Sprint(device), "-")
		return m.Interact(m.Gpuarb(args...))
	}
	job := openJob(t, m, ipc.JobOpenRequest{Memory: 700 * mib, Min: ipc.NoLimit})
	inJob := func(held uint64) *rig.Program {
		cmd := m.Command(append(m.PreloadEnv(), fmt.Sprintf("GPUARB_JOB=%x", [16]byte(job))), rig.Build(t, "programs/cudaprog-dlsym"))
		p := m.Interact(cmd)
		say(t, p, fmt.Sprintf("alloc a %d", held), "ok")
		return p
	}
	one, other := inJob(200*mib), inJob(100*mib)
	lowered := cudaprog(m)
	say(t, lowered, "alloc a 100M", "ok")
	set(t, m, lowered.PID(), "memory.max=150M")
	held := run(0, "--memory", "500M")
	say(t, held, "alloc a 300M", "ok")
	idle := run(1, "--memory", "400M")
	each := run(1, "--memory", "200M", "--per-process")
	say(t, each, "alloc a 1M", "ok")
	return []*limited{
		{one, 300 * mib, 700 * mib}, {other, 300 * mib, 700 * mib}, // shared
		{lowered, 100 * mib, 150 * mib}, {held, 300 * mib, 500 * mib},
		{idle, 0, 400 * mib}, {each, mib, 200 * mib},
	}
}

// openJob opens a job in this process, which ends with the test.
func openJob(t *testing.T, m *rig.Machine, r ipc.JobOpenRequest) ipc.Token {
	t.Helper()
	c, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	t.Cleanup(func() { c.Close() })
	rep, err := c.OpenJob(t.Context(), r)
	check(t, err)
	return rep.Job
}

// set changes a limit of a process.
func set(t *testing.T, m *rig.Machine, pid int, limit string) {
	t.Helper()
	if r := rig.Run(t, m.Gpuarb("limit", fmt.Sprint(pid), limit)); r.Code != 0 {
		t.Fatalf("gpuarb limit: %s", r.Stderr)
	}
}

// TestPagesLowerAlone: a client writes false limits into its lease page, and the daemon has no better
// record. This can reduce the client's own budget, but cannot enlarge it.
func TestPagesLowerAlone(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"300M\"\nstreams.max = 5\n"})
	honest := cudaprog(m)
	say(t, honest, "alloc a 100M", "ok")
	r := random(t)
	for round := range 20 * *scale {
		a := partyOf(t, m, 10*mib)
		lie(r, a.s.Page)
		m.Kill()
		check(t, os.Remove(m.Socket+".state"))
		m.Start()
		a.resume()
		var all uint64
		for n := uint64(64 * mib); n > 0; n /= 2 {
			if _, err := a.s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: a.slot, Kind: ipc.MemoryPlain, Bytes: n}); err == nil {
				all += n
				n *= 2
			}
		}
		if all+10*mib > 300*mib {
			t.Fatalf("round %d: it got %d bytes", round, all+10*mib)
		}
		if _, err := a.s.Main.Stream(t.Context(), a.slot, 6); err == nil {
			t.Fatalf("round %d: it got six streams", round)
		}
		check(t, a.s.Main.Bye(t.Context()))
		honest.Ask("info")
		(&limited{honest, 100 * mib, 300 * mib}).brim(t, fmt.Sprintf("round %d, an honest one", round))
	}
}

// lie fills a page's limits with random values.
func lie(r *rand.Rand, page *ipc.LeasePage) {
	page.SetJobOptions(ipc.JobOptions{Memory: r.Uint64() >> r.IntN(64), Share: r.Uint32(), Streams: r.Uint32() >> r.IntN(32), Job: r.Uint32()})
	page.Limit(0).Store(r.Uint64() >> r.IntN(64))
}
