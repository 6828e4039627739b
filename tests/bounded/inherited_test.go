package bounded

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// This test holds that tests start their programs with the same signals, umask and folder for temporary files, wherever
// the tests themselves are started.

// TestInherited runs this program again with the signals, TMPDIR and umask of nohup, of a background job and of an
// unusual user. The programs that it starts have none of these settings.
func TestInherited(t *testing.T) {
	if os.Getenv("BOUNDED_TEST_INHERITED") != "" {
		const script = `grep ^SigIgn /proc/$$/status; echo "$TMPDIR"; umask`
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		var ignored uint64
		var dir, umask string
		if _, err := fmt.Sscanf(string(out), "SigIgn: %x\n%s\n%s\n", &ignored, &dir, &umask); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if hupOrInt := uint64(3); ignored&hupOrInt != 0 || dir != "/tmp" || umask != "0022" {
			t.Errorf("a program starts with\n%s", out)
		}
		return
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := Command(t, Patience, "sh", "-c", `trap "" HUP INT; umask 077; exec "$0" "$@"`, os.Args[0], "-test.run=^TestInherited$")
	cmd.Env = append(os.Environ(), "BOUNDED_TEST_INHERITED=1", "TMPDIR="+long)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
