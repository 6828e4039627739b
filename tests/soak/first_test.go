package soak

import (
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that a program waits for the next daemon although it never had a session, if the daemon dies
// of its first message or is away at its first call. keeper_test.go restarts the daemon.

// TestDaemonDiesOfTheFirstMessage: the daemon dies of a program's first message. The program looks for the next
// daemon, although it never had a session, and holds no memory that no daemon counts.
func TestDaemonDiesOfTheFirstMessage(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"session.opened", "session.known", "session.committed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Binary: rig.Build(t, "faults/gpuarbd"),
				Environ: []string{"GPUARB_FAULT=" + point}, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
			k := keep(t, m)
			p := preload(m)
			p.Want("alloc a 100M", "ok")
			k.ready()
			if got := m.Lease(p.PID(), 0); got.Used != 100*mib || k.died() != 1 {
				t.Errorf("after %d deaths the daemon knows of %d bytes", k.died(), got.Used)
			}
			k.stop()
			gone(t, m, p)
		})
	}
}

// TestFirstCallWithoutADaemon: a job's program makes its first allocation while the daemon
// restarts, and waits for the daemon.
func TestFirstCallWithoutADaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := m.Interact(m.Gpuarb("run", "--memory", "100M", "--", rig.Build(t, "programs/cudaprog-dlsym"), "--context", "none", "-"))
	m.Kill()
	p.Tell("context c")
	m.Start()
	p.Expect("context c ok")
	p.Want("alloc a 100M", "ok")
	p.Want("alloc b 1", "err 2")
	gone(t, m, p)
}
