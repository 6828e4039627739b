package bindings

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks what gpuarb shows of jobs of cgroups: the options with which they were opened, and the memory that they use together
// with the jobs inside them.

// TestListShowsHowItWasOpened: `gpuarb job list` shows the options until, on-loss and contexts of each job, also after a restart. A value
// that is the default is not shown in the table, but by --json.
func TestListShowsHowItWasOpened(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	pod := m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", m.Below(pod, "plain").Path, "--memory", "50M")
	job(t, m, 0, "", "open", "--cgroup", m.Below(pod, "special").Path, "--memory", "50M", "--until", "idle=90m", "--on-loss", "open", "--contexts", "inside")
	job(t, m, 0, "", "open", "--cgroup", m.Below(pod, "kept").Path, "--memory", "50M", "--until", "closed")
	for range 2 {
		list := job(t, m, 0, "", "list")
		for name, options := range map[string]string{"plain": "-", "special": "idle=1h30m,on-loss=open,contexts=inside", "kept": "until=closed"} {
			row := ""
			for line := range strings.Lines(list) {
				if strings.Contains(line, name+" ") {
					row = line
				}
			}
			if !strings.Contains(row, " "+options+" ") {
				t.Errorf("the line of %s has not the options %q:\n%s", name, options, list)
			}
		}
		var rows []struct {
			Name     string `json:"job_name"`
			Until    string
			OnLoss   string `json:"on_loss"`
			Contexts string
		}
		if err := json.Unmarshal([]byte(job(t, m, 0, "", "list", "--json")), &rows); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(rows)
		if want := "[{plain gone closed outside} {special idle=1h30m open inside} {kept closed closed outside}]"; got != want {
			t.Errorf("--json says %s, want %s", got, want)
		}
		m.Kill()
		m.Start()
	}
}

// TestUsedWithTheJobsInside: what a binding uses, and the most that it used, include the jobs inside it: programs of `gpuarb run`, and
// bindings of cgroups below. Sums of users and devices count each byte once.
func TestUsedWithTheJobsInside(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box := m.Below(pod, "box")
	early := u.BareIn(box)
	early.Want("alloc a 10M", "ok")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box")
	bare := u.BareIn(pod)
	bare.Want("alloc a 5M", "ok")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "200M", "--name", "pod")
	run := runIn(m, u, box, "--name", "inner")
	run.Want("alloc a 40M", "ok")
	run.Want("free a", "ok")
	run.Want("alloc b 20M", "ok")
	check := func(name string, used, peak uint64) {
		t.Helper()
		for _, j := range m.Snapshot().Jobs {
			if j.Name == name && (uint64(j.Devices[0].Used) != used*mib || uint64(j.Devices[0].Peak) != peak*mib) {
				t.Errorf("%s uses %d bytes and used %d at most, want %d and %d MiB", name, j.Devices[0].Used, j.Devices[0].Peak, used, peak)
			}
		}
	}
	check("inner", 20, 40)
	check("box", 30, 50)
	check("pod", 35, 55)
	s := m.Snapshot()
	var users uint64
	for _, x := range s.Users {
		users += uint64(x.Used)
	}
	if users != 35*mib || uint64(s.Devices[0].Used) != 35*mib {
		t.Errorf("all users use %d bytes, and the device %d: %+v", users, s.Devices[0].Used, s.Users)
	}
	var boxJob figures.JobState
	for _, j := range s.Jobs {
		if j.Name == "box" {
			boxJob = j
		}
	}
	if boxJob.Inside == 0 || boxJob.Inside == boxJob.ID {
		t.Errorf("box is inside job %d", boxJob.Inside)
	}
	m.Kill()
	m.Start()
	rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 3 })
	run.Want("alloc c 60M", "ok")
	check("inner", 80, 80)
	check("box", 90, 90)
	check("pod", 95, 95)
	if got := job(t, m, 0, "", "close", "box"); !strings.Contains(got, "90 MiB") {
		t.Errorf("the line at the close says %s", got)
	}
	check("pod", 95, 95)
	run.End()
	early.End()
	bare.End()
	rig.Eventually(t, "nothing is used", func() bool { return len(m.Snapshot().Leases) == 0 })
	check("pod", 0, 95)
	if got := job(t, m, 0, "", "close", "pod"); !strings.Contains(got, "95 MiB") {
		t.Errorf("the line at the close says %s", got)
	}
}
