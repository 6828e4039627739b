package bindings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks the options of `gpuarb job open` that are about the programs of the job, and the bounds on jobs of cgroups.

// TestStreamsOfTheJob: in a job that was opened with --streams, no process gets more streams than that, also after a restart of the daemon.
func TestStreamsOfTheJob(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--streams", "2")
	for range 2 {
		p := u.BareIn(box)
		p.Want("stream a", "ok")
		p.Want("stream b", "ok")
		if got := p.Ask("stream c"); got == "ok" {
			t.Error("a process has a third stream")
		}
		p.Want("streamdestroy a", "ok")
		p.Want("stream c", "ok")
		m.Kill()
		m.Start()
		rig.Eventually(t, "the session is resumed", func() bool { return len(m.Snapshot().Leases) == 1 })
		if got := p.Ask("stream d"); got == "ok" {
			t.Error("after the restart a process has a third stream")
		}
		p.End()
		rig.Eventually(t, "it is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
	}
}

// TestPriorityOfTheJob: a request of a job with a higher --priority is granted before earlier requests of other jobs. That also holds for a
// program that `gpuarb run` started inside the job, and after a restart of the daemon.
func TestPriorityOfTheJob(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"max\"\n[[device]]\ncontext_reserve = \"0\"\n"})
	u, top := m.OtherUser(anne), m.Cgroup()
	low, high := m.Below(top, "low"), m.Below(top, "high")
	job(t, m, 0, "", "open", "--cgroup", low.Path, "--memory", "400M")
	job(t, m, 0, "", "open", "--cgroup", high.Path, "--memory", "400M", "--priority", "50")
	holder := u.Bare()
	holder.Want("alloc a 400M", "ok")
	first, second := u.BareIn(low), runIn(m, u, high)
	first.Tell("alloc a 300M")
	rig.Eventually(t, "the first waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	second.Tell("alloc a 300M")
	rig.Eventually(t, "both wait", func() bool { return len(m.Snapshot().Queue) == 2 })
	m.Kill()
	m.Start()
	rig.Eventually(t, "all have resumed", func() bool { s := m.Snapshot(); return len(s.Queue) == 2 && len(s.Leases) == 3 })
	holder.Want("free a", "ok")
	if line := second.Line(); line != "alloc a ok" {
		t.Errorf("the one with the higher priority: %s", line)
	}
	if n := len(m.Snapshot().Queue); n != 1 {
		t.Errorf("%d requests wait", n)
	}
	second.Want("free a", "ok")
	if line := first.Line(); line != "alloc a ok" {
		t.Errorf("the other one: %s", line)
	}
	for _, p := range []*rig.Program{first, second, holder} {
		p.End()
	}
}

// TestDevicesOfTheJob: programs of a job that was opened with --device get memory only on the devices that the option names, by index or by
// UUID. That also holds for a program of `gpuarb run` inside the job, and after a restart of the daemon.
func TestDevicesOfTheJob(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M,400M,400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 69, "--device", "open", "--cgroup", box.Path, "--memory", "100M", "--device", "7")
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--min", "100M", "--device", "1,"+m.Snapshot().Devices[2].UUID)
	for _, d := range m.Snapshot().Devices {
		if want := d.Index != 0; (d.Reserved == 100*mib) != want || (d.Reserved == 0) == want {
			t.Errorf("%d bytes are reserved on device %d", d.Reserved, d.Index)
		}
	}
	for range 2 {
		for device, allowed := range []bool{false, true, true} {
			p := u.BareIn(box, "--context", "none", "--device", fmt.Sprint(device), "-")
			made := p.Ask("context a")
			if allowed && made != "ok" {
				t.Errorf("a context on device %d: %s", device, made)
			}
			if made == "ok" {
				if got := p.Ask("alloc a 50M"); (got == "ok") != allowed {
					t.Errorf("memory of device %d: %s", device, got)
				}
			}
			p.End()
		}
		p := runIn(m, u, box) // the program sees only the devices of the job: its first is device 1
		p.Want("alloc a 50M", "ok")
		if held := m.HeldBy(p.PID(), 1).Bytes; held != 50*mib {
			t.Errorf("a program of gpuarb run has %d bytes on device 1", held)
		}
		p.End()
		m.Kill()
		m.Start()
	}
}

// TestOnLoss: while no daemon answers, programs of a job get no more memory. If the job was opened with --on-loss open, they get any
// amount. The configuration changes neither. When a daemon is back, the budget holds again.
func TestOnLoss(t *testing.T) {
	t.Parallel()
	for _, configured := range []string{"open", "closed"} {
		t.Run(configured, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "800M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
				Config: "schema_version = 1\n[defaults]\non_loss = \"" + configured + "\"\n[[device]]\ncontext_reserve = \"0\"\n"})
			u, top := m.OtherUser(anne), m.Cgroup()
			shut, open := m.Below(top, "shut"), m.Below(top, "open")
			job(t, m, 0, "", "open", "--cgroup", shut.Path, "--memory", "100M")
			job(t, m, 0, "", "open", "--cgroup", open.Path, "--memory", "100M", "--on-loss", "open")
			for range 2 {
				a, b, c := u.BareIn(shut), u.BareIn(open), runIn(m, u, shut, "--memory", "50M")
				for _, p := range []*rig.Program{a, b, c} {
					p.Want("alloc a 20M", "ok")
				}
				m.Kill()
				a.Want("alloc more 200M", errOutOfMemory)
				c.Want("alloc more 200M", errOutOfMemory)
				b.Want("alloc more 200M", "ok")
				b.Want("free more", "ok")
				a.Want("free a", "ok")
				m.Start()
				rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 3 })
				rig.Eventually(t, "it is held again", func() bool {
					if b.Ask("alloc more 81M") == errOutOfMemory {
						return true
					}
					b.Want("free more", "ok")
					return false
				})
				b.Want("alloc more 80M", "ok")
				b.Want("alloc beyond 1", errOutOfMemory)
				for _, p := range []*rig.Program{a, b, c} {
					p.End()
				}
				rig.Eventually(t, "nothing is used", func() bool { return len(m.Snapshot().Leases) == 0 })
			}
		})
	}
}

// TestSixteenNested: sixteen bindings may be nested, and the innermost budget holds. A seventeenth is refused inside the innermost and
// around the outermost, until one is closed.
func TestSixteenNested(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u := m.OtherUser(anne)
	chain := []*rig.Cgroup{m.Cgroup()}
	for len(chain) < 18 {
		chain = append(chain, m.Below(chain[len(chain)-1], "x"))
	}
	open := func(code int, says string, i int) {
		t.Helper()
		job(t, m, code, says, "open", "--cgroup", chain[i].Path, "--memory", fmt.Sprintf("%dM", 200-10*i), "--name", fmt.Sprintf("level%d", i))
	}
	for i := 1; i <= 16; i++ {
		open(0, "", i)
	}
	open(1, "17 jobs of cgroups would be nested, the most is 16", 17)
	open(1, "17 jobs of cgroups would be nested, the most is 16", 0)
	p := u.BareIn(chain[17])
	holds(t, m, p, "40M", 40*mib)
	m.Kill()
	m.Start()
	rig.Eventually(t, "the session is resumed", func() bool { return len(m.Snapshot().Leases) == 1 })
	p.Want("free all", "ok")
	holds(t, m, p, "40M", 40*mib)
	p.End()
	job(t, m, 0, "", "close", "level8")
	open(0, "", 0)
}

// TestThousandBindings: 1,024 cgroups can have jobs, and the next open is refused with the bound's name, until one is closed. All outlive
// the daemon.
func TestThousandBindings(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	top := m.Cgroup()
	c, err := ipc.Dial(t.Context(), m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	open := func(i int) error {
		at := m.Below(top, fmt.Sprint("box", i))
		_, err := c.OpenBinding(t.Context(), ipc.Binding{Cgroup: at.Path, Name: fmt.Sprint("box", i), Memory: 1 << 20, Min: 1 << 10}, nil)
		return err
	}
	for i := range 1024 {
		if err := open(i); err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
	}
	if err := open(1024); !errors.Is(err, ipc.StatusTooMany) || !strings.Contains(err.Error(), "1024 cgroups have jobs, the most that there can be") {
		t.Errorf("one more: %v", err)
	}
	m.Kill()
	m.Start()
	if n := len(m.Snapshot().Jobs); n != 1024 {
		t.Errorf("after the restart there are %d jobs", n)
	}
	job(t, m, 0, "", "close", "box7")
	job(t, m, 0, "", "open", "--cgroup", top.Path+"/box1024", "--memory", "1M")
	for i := range 1025 {
		if i == 7 {
			continue
		}
		again, err := ipc.Dial(t.Context(), m.Socket)
		if err == nil {
			_, err = again.CloseBinding(context.Background(), ipc.UnbindRequest{Name: ipc.MakeName(fmt.Sprint("box", i))})
			_ = again.Close()
		}
		if err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
	}
	if s := m.Snapshot(); len(s.Jobs) != 0 || s.Devices[0].Committed != 0 {
		t.Errorf("%d jobs and %d bytes are left", len(s.Jobs), s.Devices[0].Committed)
	}
}
