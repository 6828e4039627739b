package e2e

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that numba computes right results within its budget and its cap on streams, and is refused beyond
// them. numba_driver_test.go runs numba's own tests.

// python returns the path of the system's python3, because another python3 in PATH may lack numba.
func python() string {
	if p := os.Getenv("PYTHON"); p != "" {
		return p
	}
	return "/usr/bin/python3"
}

// TestNumba: numba keeps to its budget and its cap on streams, and computes the right results.
func TestNumba(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	const budget = 64 << 20
	cmd := m.Gpuarb("run", "--memory", "64M", "--streams", "5", "--", python(), "testdata/numba_memory.py",
		"5", strconv.Itoa(budget))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for lines := bufio.NewScanner(stdout); lines.Scan() && lines.Text() != "done"; {
		got = append(got, lines.Text())
	}
	want := []string{
		"copy right",
		"total " + strconv.Itoa(budget),
		"free " + strconv.Itoa(budget-800_000),
		"streams 5 own",
		"over the cap: refused with 2",
		"to the byte: granted " + strconv.Itoa(budget-800_000),
		"one more: refused with 2",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s\nstderr:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), &stderr)
	}
	if held := m.SimNumber("total", "0"); held != budget {
		t.Errorf("the driver holds %d bytes, want the whole budget of %d", held, budget)
	}
	if r := row(t, m, 1); r["STREAMS"] != "5" || r["USED"] != strconv.Itoa(budget) {
		t.Errorf("the row says %v streams and %v bytes", r["STREAMS"], r["USED"])
	}
	_ = stdin.Close()
	if err := rig.Wait(t, rig.Patience, cmd); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
}
