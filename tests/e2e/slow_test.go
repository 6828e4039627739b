package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a command which waits for the daemon's answer says so on a terminal, and nowhere else.

// TestSlowDaemonIsSaid: on a terminal, a command that waits for the daemon says so. A file gets no such message, and the
// final output is the same.
func TestSlowDaemonIsSaid(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	const said = "gpuarb: waiting for the daemon to answer"
	m.Halt(m.DaemonPID())
	beside := m.Terminal(120, 20, "$G devices --json 2>"+m.Dir+"/said >"+m.Dir+"/json; echo end $?; exec cat")
	quiet := m.Terminal(120, 20, "$G devices; echo end $?; exec cat", "GPUARB_QUIET=1")
	onto := m.Terminal(120, 20, "$G devices; echo end $?; exec cat")
	onto.Await(said)
	given := m.Terminal(120, 20, "trap : INT; $G run -- true; echo end $?; exec cat") // is interrupted while it waits for the daemon
	given.Await(said)
	given.Press("C-c")
	given.Await("end 130")
	if err := unix.Kill(m.DaemonPID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, terminal := range []*rig.Terminal{onto, beside, quiet} {
		terminal.Await("end 0")
	}
	if screen := onto.Screen(); !strings.Contains(screen, "Simulated GPU 0") || strings.Count(screen, said) != 1 {
		t.Errorf("shown:\n%s", screen)
	}
	if screen := quiet.Screen(); strings.Contains(screen, said) {
		t.Errorf("GPUARB_QUIET=1 shows:\n%s", screen)
	}
	if text, err := os.ReadFile(filepath.Join(m.Dir, "said")); err != nil || len(text) > 0 {
		t.Errorf("into a file goes %q (%v)", text, err)
	}
}
