package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a program in a PID namespace is shown with both of its PIDs. tests/containers has programs in
// containers.

// TestPIDOfANamespace: a program in a PID namespace of its own is shown with its PID in that namespace too. gpuarb ps has the columns for
// that only while such a program exists.
func TestPIDOfANamespace(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	outside := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	outside.Want("alloc a 4096", "ok")
	ps := func() string { return rig.Run(t, m.Gpuarb("ps")).Stdout }
	if text := ps(); regexp.MustCompile("NSPID|CONTAINER").MatchString(text) {
		t.Errorf("without anything to say there stands\n%s", text)
	}
	inside := m.Interact(m.Gpuarb("run", "--", "unshare", "--pid", "--fork", "--kill-child", cudaprog(t, "dlsym"), "-"))
	inside.Want("alloc a 8192", "ok")
	pids := map[uint64]int{}
	for _, l := range m.Snapshot().Leases {
		pids[uint64(l.Used)] = l.PID
	}
	text := ps()
	for used, nspid := range map[uint64]int{4096: pids[4096], 8192: 1} {
		if row := fmt.Sprintf(`(?m)^ *%d .* - +%d /`, pids[used], nspid); !regexp.MustCompile(row).MatchString(text) {
			t.Errorf("no row %s in\n%s", row, text)
		}
		if got := m.Read(filepath.Join("processes", fmt.Sprint(pids[used]), "nspid")); got != fmt.Sprintln(nspid) {
			t.Errorf("the file of process %d says %q, want %d", pids[used], got, nspid)
		}
	}
	var leases []report.Lease
	if err := json.Unmarshal([]byte(m.Read("leases.json")), &leases); err != nil {
		t.Fatal(err)
	}
	for _, l := range leases {
		if want := map[uint64]int{4096: l.PID, 8192: 1}[uint64(l.Used)]; l.NSPID == nil || *l.NSPID != want || l.Container != nil {
			t.Errorf("leases.json: %+v, want nspid %d", l, want)
		}
	}
}
