package bindings

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file kills the daemon while a process in the cgroup of a binding connects, asks, or resumes its session.

// armed returns a machine with a binding of 100 MiB, a user, and the binding's cgroup. The daemon is a build with fault points: after
// Machine.Arm has named a fault point, the next daemon dies there.
func armed(t *testing.T) (*rig.Machine, *rig.OtherUser, *rig.Cgroup) {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Binary: rig.Build(t, "faults/gpuarbd"),
		Config: "schema_version = 1\n[[device]]\ncontext_reserve = \"0\"\n"})
	box := m.Cgroup()
	job(t, m, 0, "", "open", "--cgroup", box.Path, "--memory", "100M", "--min", "60M", "--name", "box")
	return m, m.OtherUser(anne), box
}

// belongs checks that p, which holds 40 MiB, belongs to the job of 100 MiB: another program of the job gets 60 MiB, and then neither gets
// one byte more. After the end of both, a new program gets the whole budget. After the close of the job, a program gets the whole device.
func belongs(t *testing.T, m *rig.Machine, u *rig.OtherUser, box *rig.Cgroup, p *rig.Program) {
	t.Helper()
	beside := u.BareIn(box)
	beside.Want("alloc b 60M", "ok")
	beside.Want("alloc more 1", errOutOfMemory)
	p.Want("alloc more 1", errOutOfMemory)
	if name := m.Lease(p.PID(), 0).JobName; name != "box" {
		t.Errorf("the program is of job %q", name)
	}
	if sum := m.HeldBy(p.PID(), 0).Bytes + m.HeldBy(beside.PID(), 0).Bytes; sum != 100*mib {
		t.Errorf("the driver counts %d bytes in the cgroup", sum)
	}
	p.End()
	beside.End()
	rig.Eventually(t, "the memory of both is free", func() bool { return len(m.Snapshot().Leases) == 0 })
	late := u.BareIn(box)
	holds(t, m, late, "100M", 100*mib)
	late.End()
	rig.Eventually(t, "its memory is free", func() bool { return len(m.Snapshot().Leases) == 0 })
	job(t, m, 0, "", "close", "box")
	free := u.BareIn(box)
	holds(t, m, free, "400M", 400*mib)
	free.End()
}

// TestKilledWhileAProcessConnects: a daemon that is killed at any step of a process's first connection and first allocation leaves the
// process in its job.
func TestKilledWhileAProcessConnects(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"session.opened", "session.known", "session.committed", "lease.opened", "lease.committed",
		"objects.counted", "objects.decided", "objects.drained", "grant.granted", "alloc.decided", "alloc.drained", "request.answered"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			m, u, box := armed(t)
			m.Kill()
			m.Arm("GPUARB_FAULT=" + place)
			m.Start()
			p := m.Begin(box.In(u.BareCommand()))
			p.Tell("alloc a 40M")
			bounded.Receive(t, "the daemon dies at "+place, m.Exited())
			m.Arm()
			m.Start()
			p.Expect("ready")
			p.Expect("alloc a ok")
			belongs(t, m, u, box, p)
		})
	}
}

// TestKilledWhileAProcessResumes: a daemon that is killed while it recovers a process of the job, or while the process resumes its session,
// leaves the process in its job.
func TestKilledWhileAProcessResumes(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"recover.lease", "recover.sessions", "recover.limits", "resume.found", "resume.counted", "resume.resized", "resume.objects"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			m, u, box := armed(t)
			p := u.BareIn(box)
			p.Want("alloc a 30M", "ok")
			m.Kill()
			m.Arm("GPUARB_FAULT=" + place)
			if err := m.TryStart(); err == nil { // the daemon started, and dies when the process asks
				p.Tell("alloc b 10M")
				bounded.Receive(t, "the daemon dies at "+place, m.Exited())
				m.Arm()
				m.Start()
				p.Expect("alloc b ok")
			} else {
				m.Arm()
				m.Start()
				p.Want("alloc b 10M", "ok")
			}
			belongs(t, m, u, box, p)
		})
	}
}
