package bindings

import (
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file kills the daemon and checks that the jobs of cgroups outlive it, at whichever step it is killed.

// TestOutlivesTheDaemon: budgets, reservations, names and nesting of bindings survive a kill of the daemon, with and without
// programs. A cgroup that is removed while no daemon runs has no job afterwards.
func TestOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, pod := m.OtherUser(anne), m.Cgroup()
	box, gone, free := m.Below(pod, "box"), m.Below(pod, "gone"), m.Below(pod, "free")
	job(t, m, 0, "", "open", "--cgroup", gone.Path, "--memory", "10M", "--min", "10M")
	job(t, m, 0, "", "open", "--cgroup", free.Path, "--memory", "10M", "--until", "closed", "--name", "kept")
	id := job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "ns/pod/box")
	job(t, m, 0, "", "open", "--cgroup", pod.Path, "--memory", "150M", "--min", "120M", "--name", "ns/pod")
	a, b := u.BareIn(box), u.BareIn(pod)
	inner := runIn(m, u, box, "--memory", "30M")
	a.Want("alloc a 60M", "ok")
	b.Want("alloc b 20M", "ok")
	inner.Want("alloc c 10M", "ok")
	for range 2 {
		m.Kill()
		m.Remove(gone)
		m.Start()
		rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 3 })
		rig.Eventually(t, "the cgroup that was removed has no job", func() bool { return !named(m, "gone") })
		m.Make(gone)
		inner.Want("alloc d 20M", "ok")
		inner.Want("alloc more 1", errOutOfMemory)
		a.Want("alloc e 10M", "ok")
		a.Want("alloc more 1", errOutOfMemory) // box has 100 MiB
		b.Want("alloc f 30M", "ok")
		b.Want("alloc more 1", errOutOfMemory) // pod has 150 MiB
		inner.Want("free d", "ok")
		a.Want("free e", "ok")
		b.Want("free f", "ok")
		if again := job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "ns/pod/box"); again != id {
			t.Errorf("after the restart it is job %s, and was %s", again, id)
		}
		late := u.BareIn(gone)
		late.Want("alloc a 20M", "ok")
		late.End()
		rig.Eventually(t, "its memory is free again", func() bool { return len(m.Snapshot().Leases) == 3 })
		m.Remove(gone)
		m.Make(gone)
	}
	for _, p := range []*rig.Program{a, b, inner} {
		p.End()
	}
	m.Kill()
	m.Start()
	rig.Eventually(t, "no program is left", func() bool { return len(m.Snapshot().Leases) == 0 })
	late := u.BareIn(box)
	holds(t, m, late, "100M", 100*mib)
	late.End()
	for _, name := range []string{"ns/pod", "ns/pod/box", "kept"} {
		job(t, m, 0, "", "close", name)
	}
	m.Kill()
	m.Start()
	if left := m.Snapshot().Jobs; len(left) != 0 {
		t.Errorf("what was closed is there again: %+v", left)
	}
}

// TestKilledAtEachStep: a daemon that is killed at any step of an open or a close leaves a binding that holds, or none. The open asks the
// next daemon again and succeeds. Afterwards no byte and no binding is left.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for place, closes := range map[string]bool{"binding.opened": false, "job.committed": false, "binding.committed": false, "binding.freed": true, "job.freed": true} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Binary: rig.Build(t, "faults/gpuarbd"),
				Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n", Environ: []string{"GPUARB_FAULT=" + place}})
			u, box := m.OtherUser(anne), m.Cgroup()
			again := func() {
				t.Helper()
				select {
				case <-m.Exited():
				case <-time.After(rig.Patience):
					t.Fatalf("the daemon did not die at %s", place)
				}
				m.Arm("GPUARB_FAULT=")
				m.Start()
			}
			open := m.Begin(m.Gpuarb("job", "open", "--cgroup", box.Path, "--memory", "50M", "--min", "50M", "--name", "box"))
			if !closes {
				again()
			}
			ended(t, open, "box")
			held := u.BareIn(box)
			holds(t, m, held, "50M", 50*mib)
			held.End()
			closed := rig.Run(t, m.Gpuarb("job", "close", "--cgroup", box.Path))
			if closes {
				again()
				closed = rig.Run(t, m.Gpuarb("job", "close", "box"))
			}
			if closed.Code != 0 && !(closes && closed.Code == 1) {
				t.Errorf("closed: %d, %s", closed.Code, closed.Stderr)
			}
			rig.Eventually(t, "no binding is left", func() bool { return len(m.Snapshot().Jobs) == 0 })
			free := u.BareIn(box)
			holds(t, m, free, "400M", 400*mib)
			free.End()
		})
	}
}

// TestKilledWhileItRecovers: a daemon that is killed while it takes a binding over leaves it to the next one.
func TestKilledWhileItRecovers(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Binary: rig.Build(t, "faults/gpuarbd"),
		Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"})
	box := m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "50M", "--name", "box")
	m.Kill()
	m.Arm("GPUARB_FAULT=recover.binding")
	if err := m.TryStart(); err == nil {
		t.Fatal("the daemon did not die at recover.binding")
	}
	m.Arm("GPUARB_FAULT=")
	m.Start()
	p := m.OtherUser(anne).BareIn(box)
	holds(t, m, p, "50M", 50*mib)
	p.End()
}

// TestStaysInsideAClosedBinding: the job of a cgroup is closed while two programs run there. One program belongs to that job, and `gpuarb
// run` gave the other a job of its own inside it. The budget still holds for both together, also after the daemon was killed and started
// again. When the first program has ended, the closed job has ended too, and its budget no longer holds for the other program.
func TestStaysInsideAClosedBinding(t *testing.T) {
	t.Parallel()
	m := machine(t, "400M", "")
	u, box := m.OtherUser(anne), m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box")
	bare, inner := u.BareIn(box), runIn(m, u, box, "--name", "inner")
	bare.Want("alloc a 60M", "ok")
	inner.Want("alloc a 20M", "ok")
	job(t, m, 0, "", "close", "box")
	for range 2 {
		inner.Want("alloc b 20M", "ok")
		inner.Want("alloc more 1", errOutOfMemory)
		inner.Want("free b", "ok")
		m.Kill()
		m.Start()
		rig.Eventually(t, "the sessions are resumed", func() bool { return len(m.Snapshot().Leases) == 2 })
	}
	inner.Want("alloc b 20M", "ok")
	inner.Want("alloc more 1", errOutOfMemory)
	bare.End()
	rig.Eventually(t, "the binding has ended", func() bool { return len(m.Snapshot().Jobs) == 1 })
	holdsAtLeast(t, inner, "300M")
	m.Kill()
	m.Start()
	rig.Eventually(t, "the session is resumed", func() bool { return len(m.Snapshot().Leases) == 1 })
	inner.Want("alloc rest 60M", "ok")
	inner.End()
}
