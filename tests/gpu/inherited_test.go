package gpu

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has one of the checks in the table of driver_test.go, which run on the simulated driver and on a real GPU:
// `gpuarb run` passes ignored signals on to a program unchanged.

// inherited checks that a program that uses the driver ignores the same signals under `gpuarb run` as without it, if the shell
// that starts them ignores some.
func inherited(t *testing.T, m *rig.Machine) {
	program, gpuarb := rig.Build(t, "programs/cudaprog-dlsym"), rig.Build(t, "gpuarb")
	var want string
	for _, wrapper := range []string{"", gpuarb + " run --memory 64M --exec=false --", gpuarb + " run --memory 64M --exec --"} {
		script := `trap "" PIPE TERM QUIT USR1 ALRM XFSZ; exec ` + wrapper + " " + program
		p := m.Interact(m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), "sh", "-c", script))
		p.Want("alloc a 1M", "ok")
		got := ignored(t, p.PID())
		if wrapper == "" {
			want = got
		} else if got != want {
			t.Errorf("%s: ignored signals %s, want %s", wrapper, got, want)
		}
		p.End()
	}
}

// ignored returns the line of /proc/PID/status with the signals that a process ignores.
func ignored(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	return lines[slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "SigIgn:") })]
}
