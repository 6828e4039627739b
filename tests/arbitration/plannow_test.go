package arbitration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that `gpuarb plan` tells of the machine as it is: what is free beside programs, contexts,
// reservations and programs without gpuarb, and what is in the way of a new program. The oracle is `gpuarb run
// --no-wait` with the same flags: it starts the program, or ends with 75. TestPlanIsWhatRuns has the plan of a machine
// on which nothing runs.

// planned is a part of the output of `gpuarb plan --min --json`.
type planned struct {
	Now      uint64 `json:"now"`
	Any      int    `json:"now_any"`
	Emptiest int    `json:"now_emptiest"`
	Devices  []struct {
		Device    int     `json:"device"`
		Total     uint64  `json:"device_total_bytes"`
		Free      uint64  `json:"free_now_bytes"`
		Context   uint64  `json:"context_bytes"`
		Held      uint64  `json:"held_bytes"`
		Kept      uint64  `json:"kept_bytes"`
		Overhead  uint64  `json:"overhead_bytes"`
		Unmanaged uint64  `json:"unmanaged_bytes"`
		SetAside  uint64  `json:"set_aside_bytes"`
		WaitsFor  *string `json:"waits_for"`
		Given     bool    `json:"given"`
		Now       uint64  `json:"now"`
	} `json:"devices"`
}

// planFor asks for a plan on GPU 0, as JSON and as text.
func planFor(t *testing.T, m *rig.Machine, args ...string) (p planned, text string) {
	t.Helper()
	args = append([]string{"plan", "--device", "0"}, args...)
	r := rig.Run(t, m.Gpuarb(append(args, "--json")...))
	if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil || len(p.Devices) != 1 {
		t.Fatalf("gpuarb %v: %v\n%s%s", args, err, r.Stdout, r.Stderr)
	}
	return p, rig.Run(t, m.Gpuarb(args...)).Stdout
}

// agrees compares a plan with what `gpuarb run --no-wait` does, and returns the text of the plan.
func agrees(t *testing.T, m *rig.Machine, when, size string) string {
	t.Helper()
	gone(t, m)
	p, text := planFor(t, m, "--min", size)
	r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--device", "0", "--min", size, "--", "/bin/true"))
	want := map[bool]string{true: "it runs at once", false: "it would wait"}[r.Code == 0]
	if r.Code != 0 && r.Code != 75 {
		want = "`gpuarb run` refuses it"
	}
	if (p.Now == 1) != (r.Code == 0) || !strings.Contains(text, want) {
		t.Errorf("%s, --min %s: run ends with %d (%s), and the plan is\n%s", when, size, r.Code, strings.TrimSpace(r.Stderr), text)
	}
	return text
}

func TestPlanIsNow(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=256M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"256MiB\"\n[[device]]\nmatch.index = 0\nreserve = \"512MiB\"\n"})
	if p, text := planFor(t, m); p.Devices[0].Free != 7680<<20 || !strings.HasPrefix(text, "GPU 0: free now: 7.5 GiB; a program's context takes 256 MiB of it\n") {
		t.Errorf("an idle device: %+v\n%s", p, text)
	}
	holder := cudaprog(m, "--device", "0", "--name", "holder")
	holder.Want("alloc a 1G", "ok")
	kept := cudaprog(m, "--device", "0", "--min", "1G", "--name", "kept")
	kept.Want("alloc a 200M", "ok")
	outside := m.Interact(m.Command(m.Env(), rig.Build(t, "programs/cudaprog-dlsym")))
	outside.Want("alloc a 700M", "ok")
	rig.Eventually(t, "the daemon counts the program without gpuarb, and the contexts", func() bool {
		d := m.Snapshot().Devices[0]
		return d.Unmanaged == 956<<20 && d.Overhead == 512<<20
	})
	p, text := planFor(t, m)
	d := p.Devices[0]
	if sum := d.Free + d.Held + d.Kept + d.Overhead + d.Unmanaged + d.SetAside; sum != d.Total || d.Total != 8*gib || d.Kept+d.Held != 2*gib || d.Unmanaged != 956<<20 || d.SetAside != 512<<20 {
		t.Errorf("the amounts add up to %d of %d: %+v", sum, d.Total, d)
	}
	for _, said := range []string{"of 8 GiB, programs hold 1.", " more is reserved, contexts take 512 MiB, the configuration sets 512 MiB aside, programs without gpuarb (",
		fmt.Sprintf("cudaprog-dlsym[%d]) hold 956 MiB\n", outside.PID())} {
		if !strings.Contains(text, said) {
			t.Errorf("the plan does not say %q:\n%s", said, text)
		}
	}
	edge := d.Free - d.Context
	for _, size := range []string{"1G", fmt.Sprint(edge), fmt.Sprint(edge + 1), fmt.Sprint(edge + 1<<20), fmt.Sprint(edge + 4<<20), fmt.Sprint(edge + 5<<20), "6G", "7424M", "7425M", "50%", "90%", "max"} {
		agrees(t, m, "beside others", size)
	}
	if text := agrees(t, m, "beside others", "6G"); !strings.HasPrefix(text, "GPU 0: one copy needs 6.2 GiB with its context; free now: ") {
		t.Errorf("the verdict: %s", text)
	}
	if _, text := planFor(t, m, "--copies", "5", "--min", "1G"); !strings.Contains(text, "5 copies need 6.2 GiB with their contexts (1.2 GiB each); free now: ") ||
		!strings.Contains(text, ": 3 run at once, 2 would wait\n") || !strings.Contains(text, "if no other program ran under gpuarb, 5 would run at once") {
		t.Errorf("of five copies:\n%s", text)
	}

	ahead := m.Gpuarb("run", "--wait", "--device", "0", "--min", "7G", "--name", "big", "--", "/bin/true")
	if err := ahead.Start(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	for _, size := range []string{"1M", "1G", "6G"} {
		if text := agrees(t, m, "behind a request", size); !strings.Contains(text, "big (true[") || !strings.Contains(text, "is ahead: it has waited for 7 GiB for ") {
			t.Errorf("the plan does not say who is ahead:\n%s", text)
		}
	}
	rig.Run(t, m.Gpuarb("queue", "cancel", fmt.Sprint(m.Snapshot().Queue[0].Ticket)))
	_ = ahead.Wait()

	for setting, said := range map[string]string{"memory.max=3G": "the budget of all programs of user ", "memory.max=max": ""} {
		if r := rig.Run(t, m.Gpuarb("limit", "--user", rig.User(), "--device", "0", setting)); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		for _, size := range []string{"900M", "1G", "1025M", "2G", "4G"} {
			if text := agrees(t, m, setting, size); size == "2G" && !strings.Contains(text, said) {
				t.Errorf("%s: the plan does not say %q:\n%s", setting, said, text)
			}
		}
	}
	for _, setting := range []string{"2", "3", "max"} {
		if r := rig.Run(t, m.Gpuarb("limit", "--device", "0", "slots.max="+setting)); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		if text := agrees(t, m, "slots.max="+setting, "1G"); strings.Contains(text, "all of its slots are taken (slots.max is 2)") != (setting == "2") {
			t.Errorf("slots.max=%s: %s", setting, text)
		}
	}
	for _, p := range []*rig.Program{holder, kept, outside} {
		p.End()
	}
	alone := cudaprog(m, "--exclusive", "--device", "0", "--name", "alone")
	if text := agrees(t, m, "beside an exclusive job", "1G"); !strings.Contains(text, "has it alone (--exclusive)") {
		t.Errorf("the plan does not say who has it: %s", text)
	}
	if p, _ := planFor(t, m, "--min", "1G"); p.Devices[0].WaitsFor == nil {
		t.Error("waits_for is null beside an exclusive job")
	}
	alone.End()
}

// TestPlanOfSeveralDevices: plan says how many programs begin with --device emptiest and with --device any. As many begin, and no more.
func TestPlanOfSeveralDevices(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,16G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=256M"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"256MiB\"\n"})
	cudaprog(m, "--device", "0").Want("alloc a 1G", "ok")
	cudaprog(m, "--device", "any", "--prefer", "0").Want("alloc a 1M", "ok") // has GPU 0 by claim
	for _, choice := range []string{"any", "emptiest"} {
		var p planned
		r := rig.Run(t, m.Gpuarb("plan", "--min", "3G", "--copies", "50", "--json"))
		if err := json.Unmarshal([]byte(r.Stdout), &p); err != nil {
			t.Fatalf("%v\n%s", err, r.Stderr)
		}
		want := map[string]int{"any": p.Any, "emptiest": p.Emptiest}[choice]
		var running []*rig.Program
		for begun := 0; ; begun++ {
			if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--device", choice, "--min", "3G", "--", "/bin/true")); r.Code != 0 {
				if r.Code != 75 || begun != want {
					t.Errorf("--device %s: %d begin (%d %s), and the plan says %d", choice, begun, r.Code, strings.TrimSpace(r.Stderr), want)
				}
				break
			}
			gone(t, m)
			p := cudaprog(m, "--no-wait", "--device", choice, "--min", "3G")
			p.Want("alloc a 3G", "ok") // until then, emptiest keeps the whole device for a run without a budget
			running = append(running, p)
		}
		for _, p := range running {
			p.End()
		}
		rig.Eventually(t, "the programs are gone", func() bool { return len(m.Snapshot().Jobs) == 2 })
	}
}

// gone waits until the jobs of programs that ended at once are gone.
func gone(t *testing.T, m *rig.Machine) {
	t.Helper()
	rig.Eventually(t, "the job of the last run is gone", func() bool {
		return !slices.ContainsFunc(m.Snapshot().Jobs, func(j figures.JobState) bool { return j.Command == "/bin/true" && j.Name == "" })
	})
}

// TestPlanSeesWhatAProgramSees: without --device, plan is about the devices that the environment lets a program see.
func TestPlanSeesWhatAProgramSees(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,16G", NoMount: true})
	for visible, want := range map[string][]string{"": {"GPU 0", "GPU 1", "Each copy"}, "1": {"GPU 1"}} {
		plan := m.Gpuarb("plan", "--min", "4G", "--copies", "4")
		plan.Env = append(plan.Env, "CUDA_DEVICE_ORDER=PCI_BUS_ID")
		if visible != "" {
			plan.Env = append(plan.Env, "CUDA_VISIBLE_DEVICES="+visible)
		}
		r := rig.Run(t, plan)
		var got []string
		for line := range strings.Lines(r.Stdout) {
			if !strings.HasPrefix(line, " ") {
				got = append(got, strings.Join(strings.Fields(strings.Split(line, ":")[0])[:2], " "))
			}
		}
		if r.Code != 0 || !slices.Equal(got, want) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: lines %q, want %q\n%s%s", visible, got, want, r.Stdout, r.Stderr)
		}
	}
}
