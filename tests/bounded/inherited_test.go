package bounded

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInherited runs this program again as nohup, a background job and a user with a long
// TMPDIR have it: what it starts knows nothing of that.
func TestInherited(t *testing.T) {
	if os.Getenv("BOUNDED_TEST_INHERITED") != "" {
		out, err := exec.Command("sh", "-c", `grep ^SigIgn /proc/$$/status; echo "$TMPDIR"`).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(string(out)); len(got) != 3 || got[1] != "0000000000000000" || got[2] != "/tmp" {
			t.Errorf("a program starts with %q", got)
		}
		return
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("long/", 20))
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := Command(t, Patience, "sh", "-c", `trap "" HUP INT; exec "$0" "$@"`, os.Args[0], "-test.run=^TestInherited$")
	cmd.Env = append(os.Environ(), "BOUNDED_TEST_INHERITED=1", "TMPDIR="+long)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
