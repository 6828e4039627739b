package rig

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks stuck.go: a test that waits in vain must say what its processes do, and must leave none of
// them behind.

// victim is a test that may fail; said collects its messages.
type victim struct {
	testing.TB
	said string
}

func (v *victim) Errorf(format string, args ...any) { v.said += fmt.Sprintf(format, args...) }
func (v *victim) Helper()                           {}

// TestStuck: a test that waits in vain reports what every process of its machine does, and
// all these processes end, including the daemon.
func TestStuck(t *testing.T) {
	v := &victim{TB: t}
	m := New(v, Options{Devices: "1G", Life: time.Hour})
	p := m.Interact(m.Command(m.PreloadEnv(), Build(t, "programs/cudaprog-dlsym"), "-"))
	p.Want("alloc a 100M", "ok")
	daemon, program := m.DaemonPID(), p.PID()
	m.stuck("pigs fly")
	for _, part := range []string{
		"not yet: pigs fly", "(cudaprog-dlsym) in ", fmt.Sprintf("process %d: ", program), fmt.Sprint(100 << 20),
		"goroutine 1 ", "USER",
	} {
		if !strings.Contains(v.said, part) {
			t.Errorf("%q is missing in: %s", part, v.said)
		}
	}
	m.killAll()
	Eventually(t, "the program and the daemon have ended", func() bool {
		return unix.Kill(daemon, 0) == unix.ESRCH && !strings.Contains(bounded.Threads(program), "programs/cudaprog") // a zombie has no command line
	})
}

// TestReadOfAStoppedDaemon: a read of the mount does not end because the daemon is stopped. The test gives up, and the read ends
// with the daemon.
func TestReadOfAStoppedDaemon(t *testing.T) {
	m := New(&victim{TB: t}, Options{Devices: "1G", Life: time.Hour})
	read := make(chan error, 1)
	m.Halt(m.DaemonPID())
	go func() {
		_, err := os.ReadFile(m.Mount + "/leases")
		read <- err
	}()
	m.stuck("a read")
	select {
	case <-read:
	case <-time.After(Patience):
		t.Fatal("the read goes on though its daemon is dead")
	}
}
