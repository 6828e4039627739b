package arbitration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold the promises of `gpuarb run` about the start of a program: --exclusive gives a device to one job,
// --no-wait starts a program only if it can run at once, --min reserves memory, and `gpuarb plan` predicts all this.
// wait_test.go has requests of programs that have started.

// TestExclusive: an exclusive job does not wait for itself, its programs share its
// budget, and no other job gets the device before it ends.
func TestExclusive(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	job := m.Begin(m.Gpuarb("run", "--exclusive", "--memory", "4G", "--", "/bin/sh", "-c",
		`exec 3<&0; "$0" "alloc a 2G; hold" <&3 & "$0" "alloc b 2G; hold" <&3 & wait`, rig.Build(t, "programs/cudaprog-dlsym")))
	granted := 0
	for granted < 2 {
		switch line := job.Line(); {
		case strings.HasSuffix(line, " ok") && strings.HasPrefix(line, "alloc"):
			granted++
		case line != "ready" && line != "hold ok":
			t.Fatalf("the job says %q", line)
		}
	}
	if n := m.SimNumber("total", "0"); n != 4*gib {
		t.Errorf("the two hold %d bytes, want the budget of both", n)
	}
	outsider := m.Begin(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 1)
	if !outsider.Silent() {
		t.Error("another job runs beside the exclusive job")
	}
	if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--exclusive", "--", "/bin/true")); r.Code != 75 {
		t.Errorf("gpuarb run --no-wait --exclusive beside it: %d %s", r.Code, r.Stderr)
	}
	if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--", rig.Build(t, "programs/cudaprog-dlsym"))); r.Code != 75 || r.Stdout != "" || !strings.Contains(r.Stderr, "held alone (--exclusive) by ") {
		t.Errorf("a program that does not wait is started beside it: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	job.CloseStdin()
	if status := job.Wait(); status != 0 {
		t.Errorf("the job ended with %d: %s", status, job.Stderr())
	}
	outsider.Expect("ready")
	outsider.Want("alloc a 1M", "ok")
	outsider.End()
	idle(m)
}

// TestNoWaitHasItsSlot: if each process or thread needs a slot, a job with --no-wait has one from
// its start, before its program uses the GPU. It keeps the slot over a restart of the daemon.
func TestNoWaitHasItsSlot(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"process", "thread"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "8G", "[[device]]\nslots.max = 1\nslots.scope = \""+scope+"\"\n")
			job := m.Begin(m.Gpuarb("run", "--no-wait", "--", "/bin/sh", "-c", `echo started; read go; "$0" "alloc a 1M" && "$0" "alloc b 1M"`,
				rig.Build(t, "programs/cudaprog-dlsym")))
			job.Expect("started")
			other := m.Begin(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
			waiting(m, 1)
			if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--", "/bin/echo", "started")); r.Code != 75 || r.Stdout != "" {
				t.Errorf("one more is started, and would be refused: %d %q", r.Code, r.Stdout)
			}
			m.Kill()
			m.Start()
			job.Tell("go")
			if status := job.Wait(); status != 0 {
				t.Errorf("a program that was started is refused: %d %s", status, job.Stderr())
			}
			other.Expect("ready")
			other.End()
			idle(m)
		})
	}
}

// TestExclusiveWaits: an exclusive job waits until the device has no other user, and says which jobs it waits for.
func TestExclusiveWaits(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	holder := bare(m)
	holder.Want("alloc a 1M", "ok")
	job := m.Begin(m.Gpuarb("run", "--exclusive", "--", rig.Build(t, "programs/cudaprog-dlsym")))
	waiting(m, 1)
	rig.Eventually(t, "the job names the jobs that it waits for", func() bool {
		return strings.Contains(job.Stderr(), "cudaprog-dlsym")
	})
	holder.End()
	job.Expect("ready")
	job.End()
	idle(m)
}

// TestReservationOnDevicesOfTwoSizes: a reservation is not reduced to fit a smaller device that the job does not
// use. A job that names both devices is told what the smaller device could reserve.
func TestReservationOnDevicesOfTwoSizes(t *testing.T) {
	t.Parallel()
	m := machine(t, "4G,8G", "")
	p := cudaprog(m, "--min", "7G")
	p.Want("alloc a 7G", "ok")
	rig.Eventually(t, "the waiting job has a message", func() bool {
		return strings.Contains(p.Stderr(), "--min 7G fits GPU 1 alone: the program is given no other")
	})
	s := m.Snapshot()
	if s.Devices[0].Committed != 0 || s.Devices[1].Committed < 7*gib {
		t.Errorf("reserved: %d and %d", s.Devices[0].Committed, s.Devices[1].Committed)
	}
	p.End()
	r := rig.Run(t, m.Gpuarb("run", "--min", "7G", "--device", "0,1", "--", "/bin/true"))
	if r.Code != 125 || !strings.Contains(r.Stderr, "memory.min of 7 GiB on GPU 0 could never be used in full: 3.7 GiB is the most") {
		t.Errorf("on both by name: %d %s", r.Code, r.Stderr)
	}
	idle(m)
}

// TestNoWaitSees: a job with --no-wait is judged on the devices that its program will see.
// It is not started if another job blocks one of these devices.
func TestNoWaitSees(t *testing.T) {
	t.Parallel()
	m := machine(t, "4G,8G", "")
	alone := cudaprog(m, "--device", "0", "--exclusive")
	uuid := m.Snapshot().Devices[1].UUID
	run := func(visible string, flags ...string) rig.Result {
		cmd := m.Gpuarb(append(append([]string{"run", "--no-wait"}, flags...), "--", rig.Build(t, "programs/cudaprog-dlsym"), "alloc a 1M")...)
		if visible != "all" {
			cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+visible)
		}
		return rig.Run(t, cmd)
	}
	for _, visible := range []string{"1", uuid, uuid[:len(uuid)-1], "1,x,0", "1,9,0"} {
		if r := run(visible); r.Code != 0 || !strings.Contains(r.Stdout, "alloc a ok") {
			t.Errorf("it sees %s: %d %q %q", visible, r.Code, r.Stdout, r.Stderr)
		}
	}
	for _, visible := range []string{"0", "all", "1,0", "0,1"} {
		if r := run(visible); r.Code != 75 || r.Stdout != "" || !strings.Contains(r.Stderr, "held alone (--exclusive) by ") {
			t.Errorf("it sees %s, and GPU 0 is another's: %d %q %q", visible, r.Code, r.Stdout, r.Stderr)
		}
	}
	if r := run("x"); r.Code == 75 || !strings.Contains(r.Stdout+r.Stderr, "100") {
		t.Errorf("it sees none: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	// The job reserves memory on the devices that its program will see, or it is not started.
	if r := run("1", "--min", "7G"); r.Code != 0 {
		t.Errorf("GPU 1 has room for it: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	rig.Eventually(t, "nothing is reserved any more", func() bool { return m.Snapshot().Devices[1].Committed == 0 })
	holder := bare(m, "CUDA_VISIBLE_DEVICES=1")
	holder.Want("alloc a 2G", "ok")
	if r := run("1", "--min", "7G"); r.Code != 75 || r.Stdout != "" || !strings.Contains(r.Stderr, "on GPU 1 cannot be reserved") {
		t.Errorf("GPU 1 has no room for it: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	if r := run("all", "--device", "any"); r.Code != 0 {
		t.Errorf("GPU 1 is free for one more: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	if r := run("all", "--device", "any", "--min", "7G"); r.Code != 75 || r.Stdout != "" {
		t.Errorf("no device has room for it: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	if r := run("0", "--device", "any"); r.Code != 75 || r.Stdout != "" {
		t.Errorf("any of those that it sees: %d %q %q", r.Code, r.Stdout, r.Stderr)
	}
	holder.End()
	alone.End()
	everything := cudaprog(m, "--exclusive")
	for _, flags := range [][]string{nil, {"--min", "1G"}, {"--device", "any"}, {"--device", "any", "--min", "1G"}} {
		for _, visible := range []string{"all", "1"} {
			if r := run(visible, flags...); r.Code != 75 || r.Stdout != "" {
				t.Errorf("all devices are another's, %v of %s: %d %q %q", flags, visible, r.Code, r.Stdout, r.Stderr)
			}
		}
	}
	everything.End()
	idle(m)
}

// TestPlanIsWhatRuns: for each device, plan predicts what `gpuarb run --min` does there, and how many such jobs run at once.
func TestPlanIsWhatRuns(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "4G,8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=256M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"256MiB\"\n[[device]]\nmatch.index = 1\nreserve = \"1GiB\"\n"})
	for _, size := range []string{"1G", "3G", "3840M", "3841M", "6G", "6912M", "6913M", "8G", "50%", "90%", "max"} {
		var plan struct {
			AtOnce  int `json:"at_once"`
			Devices []struct {
				Device int    `json:"device"`
				Min    uint64 `json:"min_bytes"`
				Most   uint64 `json:"most_bytes"`
				Given  bool   `json:"given"`
			} `json:"devices"`
		}
		out := rig.Run(t, m.Gpuarb("plan", "--arms", "9", "--min", size, "--json"))
		if err := json.Unmarshal([]byte(out.Stdout), &plan); err != nil {
			t.Fatalf("%s: %v %+v", size, err, out)
		}
		text := rig.Run(t, m.Gpuarb("plan", "--arms", "9", "--min", size)).Stdout
		anywhere := plan.Devices[0].Given || plan.Devices[1].Given
		if !anywhere {
			r := rig.Run(t, m.Gpuarb("run", "--min", size, "--", "/bin/true"))
			most := "6.7 GiB is the most" // the most on the larger device
			if r.Code != 125 || !strings.Contains(r.Stderr, most) || !strings.Contains(text, most) || !strings.Contains(text, "`gpuarb run` refuses it") {
				t.Errorf("--min %s fits none: %d %s\nplan: %s", size, r.Code, r.Stderr, text)
			}
			continue
		}
		var running []*rig.Program
		for range plan.AtOnce {
			p := m.Interact(m.Gpuarb("run", "--no-wait", "--min", size, "--", rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none", "-"))
			p.Want("pid", fmt.Sprintf("ok %d", p.PID()))
			running = append(running, p)
		}
		s := m.Snapshot()
		for i, d := range plan.Devices {
			var reserved uint64
			if d.Given {
				reserved = d.Min * uint64(plan.AtOnce)
			}
			if uint64(s.Devices[i].Reserved) != reserved || d.Given != (d.Min <= d.Most) {
				t.Errorf("--min %s on GPU %d: plan says %+v, %d bytes are reserved\n%s", size, i, d, s.Devices[i].Reserved, text)
			}
		}
		if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--min", size, "--", "/bin/true")); r.Code != 75 {
			t.Errorf("--min %s: one more than the plan says runs: %d %s", size, r.Code, r.Stderr)
		}
		if one := plan.Devices[0].Given != plan.Devices[1].Given; one != strings.Contains(text, "the programs are not given this device") {
			t.Errorf("--min %s: plan says %s", size, text)
		}
		for _, p := range running {
			p.End()
		}
		idle(m)
	}
}
