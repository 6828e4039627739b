package evict

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// These tests check that a hook asks an idle job for its memory, and that a waiting program gets that memory. They also check that
// memory is reserved for the job before the job is asked to take it again. arbiter/suspend_test.go tests which jobs are chosen.

const gib = 1 << 30

// hooks makes a folder with a script that is the hook for suspend and for resume. The script writes its environment to a file that is
// named by its first argument, suspend or resume. It ends when the test writes an exit status to its FIFO.
func hooks(t *testing.T) (folder string) {
	folder = t.TempDir()
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nenv > " + folder + "/.$1 && mv " + folder + "/.$1 " + folder + "/$1\nread how < " + folder + "/fifo\nexit $how\n"
	if err := os.WriteFile(filepath.Join(folder, "hook"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(folder, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	return folder
}

// machine returns a machine with a device of 8 GiB. Its hooks are those of the folder, and a job is idle after half a second.
func machine(t *testing.T, folder string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(`schema_version = 1
[defaults]
on_full = "wait"
evict.after = "1s"
evict.how = "hook"
evict.suspend = [%[1]q, "suspend"]
evict.resume = [%[1]q, "resume"]
evict.idle_after = "500ms"
evict.min_resident = "1s"
evict.return = "never"
`, folder+"/hook")})
}

// cudaprog starts the interactive test program by `gpuarb run`.
func cudaprog(m *rig.Machine) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Gpuarb("run", "--", rig.Build(m.T, "programs/cudaprog-dlsym")))
}

// said waits until the hook for suspend or resume (what) runs, and returns its environment.
func said(t *testing.T, folder, what string) (env map[string]string) {
	t.Helper()
	rig.Eventually(t, "the hook runs: "+what, func() bool {
		data, err := os.ReadFile(filepath.Join(folder, what))
		env = map[string]string{}
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			env[name] = value
		}
		return err == nil
	})
	_ = os.Remove(filepath.Join(folder, what))
	return env
}

// ends lets the running hook end with an exit status.
func ends(t *testing.T, folder string, status int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, "fifo"), fmt.Appendln(nil, status), 0); err != nil {
		t.Fatal(err)
	}
}

// TestAnIdleJobMakesRoom: the hook asks an idle program, the program gives its memory back, and the waiting program gets it.
func TestAnIdleJobMakesRoom(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	m := machine(t, folder)
	idle, waits := cudaprog(m), cudaprog(m)
	idle.Want("alloc a 6G", "ok")
	waits.Tell("alloc b 4G")
	env := said(t, folder, "suspend")
	if env["GPUARB_PIDS"] != fmt.Sprint(idle.PID()) || env["GPUARB_BYTES_WANTED"] != fmt.Sprint(4*gib) || env["GPUARB_DEVICE"] != "0" || env["LD_PRELOAD"] != "" {
		t.Errorf("the hook has %v", env)
	}
	idle.Want("free a", "ok")
	ends(t, folder, 0)
	if got := waits.Line(); got != "alloc b ok" {
		t.Errorf("the waiting program says %q", got)
	}
	if n := m.SimNumber("used", "0"); n != 4*gib {
		t.Errorf("the driver has %d bytes in use", n)
	}
}

// TestAResumeNeverMeetsAFullCard: after gpuarb resume a suspended job waits in the queue until everything that it held fits. Only then
// its hook runs, and its allocations use memory that is reserved for it. The program that uses the room until then is not asked to give
// it back.
func TestAResumeNeverMeetsAFullCard(t *testing.T) {
	t.Parallel()
	folder := hooks(t)
	m := machine(t, folder)
	server, other := cudaprog(m), cudaprog(m)
	server.Want("alloc a 6G", "ok")
	gpuarb := func(args ...string) {
		t.Helper()
		if r := rig.Run(t, m.Gpuarb(args...)); r.Code != 0 {
			t.Fatalf("gpuarb %v: %d, %s", args, r.Code, r.Stderr)
		}
	}
	gpuarb("suspend", "1")
	said(t, folder, "suspend")
	server.Want("free a", "ok")
	ends(t, folder, 0)
	other.Want("alloc b 4G", "ok")
	m.AwaitLog("gave its memory back")
	gpuarb("resume", "1")
	rig.Eventually(t, "the way back waits in the queue", func() bool {
		q := m.Snapshot().Queue
		return len(q) == 1 && q[0].Job == 1 && q[0].WantsBytes == 6*gib
	})
	other.Want("free b", "ok")
	said(t, folder, "resume")
	third := cudaprog(m)
	third.Tell("alloc c 3G") // it must wait: 6 of 8 GiB are reserved
	rig.Eventually(t, "a third program waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	server.Want("alloc a 6G", "ok")
	ends(t, folder, 0)
	m.AwaitLog("has its memory again")
	if peak := m.SimNumber("peak", "0"); peak > 8*gib {
		t.Errorf("the driver saw %d bytes in use at once", peak)
	}
}
