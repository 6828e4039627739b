package arbitration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold how long a job lives: until the last process that its command started has ended, also over a restart
// of the daemon. left_test.go has the messages about such a process.

// leaveBehind starts a `gpuarb run` whose command ends at once and leaves a program behind. The program
// uses the GPU only after goOn is called; said returns what it printed.
func leaveBehind(t *testing.T, m *rig.Machine, script string) (goOn func(), said func() string) {
	t.Helper()
	fifo, out := filepath.Join(m.Dir, "go"), filepath.Join(m.Dir, "said")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(m.Dir, "late")
	if err := os.WriteFile(late, []byte("#!/bin/sh\nread go <"+fifo+"\nexec "+rig.Build(t, "programs/cudaprog-dlsym")+
		" \"alloc a 1G\" >"+out+" 2>&1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	script = strings.ReplaceAll(script, "LATE", late)
	r := rig.Run(t, m.Gpuarb("run", "--memory", "2G", "--min", "2G", "--", "/bin/sh", "-c", script))
	if r.Code != 0 {
		t.Fatalf("gpuarb run ended with %d: %s", r.Code, r.Stderr)
	}
	return func() {
			file, err := os.OpenFile(fifo, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.WriteString("go\n"); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, "the fifo is read", func() bool {
				n, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCINQ)
				return err == nil && n == 0
			})
		}, func() string {
			text, _ := os.ReadFile(out)
			return string(text)
		}
}

// livesOn waits until the daemon has logged that the command of a job has ended and that other processes of the job
// still run.
func livesOn(m *rig.Machine) {
	m.T.Helper()
	m.AwaitLog("something of it lives on")
}

// TestJobOutlivesItsCommand: a program that a job's command leaves behind stays in the job. The job keeps
// its reservation until the last such program has ended, also over a restart of the daemon.
func TestJobOutlivesItsCommand(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"background":  `LATE </dev/null >/dev/null 2>&1 & exit 0`,
		"nohup":       `nohup LATE >/dev/null 2>&1 & exit 0`,
		"setsid":      `setsid LATE </dev/null >/dev/null 2>&1 & exit 0`,
		"double fork": `( ( setsid LATE </dev/null >/dev/null 2>&1 & ) & ) ; exit 0`,
		"no descriptors": `python3 -c 'import subprocess as s
s.Popen(["LATE"], stdin=s.DEVNULL, stdout=s.DEVNULL, stderr=s.DEVNULL, start_new_session=True)'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine(t, "8G", "")
			goOn, said := leaveBehind(t, m, script)
			livesOn(m)
			if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--min", "7G", "--", "/bin/true")); r.Code != 75 {
				t.Errorf("another job got reserved memory: %d, %s", r.Code, r.Stderr)
			}
			m.Kill()
			m.Start()
			if s := m.Snapshot(); len(s.Jobs) != 1 || s.Devices[0].Committed != 2<<30 {
				t.Errorf("after a restart %d jobs, %d bytes reserved", len(s.Jobs), s.Devices[0].Committed)
			}
			goOn()
			rig.Eventually(t, "the program has its memory", func() bool { return strings.Contains(said(), "alloc a ") })
			if got := said(); !strings.Contains(got, "alloc a ok") {
				t.Errorf("the program says %q", got)
			}
			idle(m)
		})
	}
}

// TestJobEndsWithNothingLeft: a job without processes ends before a new request could be refused
// because of it. A job whose last process ends while no daemon runs ends with the start of the next daemon.
func TestJobEndsWithNothingLeft(t *testing.T) {
	t.Parallel()
	m := machine(t, "8G", "")
	for range 5 {
		if r := rig.Run(t, m.Gpuarb("run", "--no-wait", "--min", "7G", "--", "/bin/true")); r.Code != 0 {
			t.Fatalf("the job before is still there: %d, %s", r.Code, r.Stderr)
		}
	}
	goOn, said := leaveBehind(t, m, `setsid LATE </dev/null >/dev/null 2>&1 & exit 0`)
	livesOn(m)
	m.Kill()
	goOn()
	// The program is below gpuarb run, so it is refused memory while no daemon runs.
	rig.Eventually(t, "the program has ended", func() bool { return strings.Contains(said(), "alloc a err") })
	m.Start()
	idle(m)
}
