package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the row D7 of rows.txt: idle jobs make room for a request that waits. Their hook ends them, so that the driver's count
// shows who was asked.

const gib = 1 << 30

// evicting returns a machine of 8 GiB on which jobs that are idle for a second make room for a request that has waited for one second. Those of
// asked are the processes that the hook was run for.
func evicting(t *testing.T) (m *rig.Machine, asked func() []string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	hook, log := filepath.Join(folder, "hook"), filepath.Join(folder, "asked")
	script := "#!/bin/sh\necho $GPUARB_PIDS >> " + log + "\nkill -KILL $GPUARB_PIDS\n"
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	m = rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(`schema_version = 1
[defaults]
on_full = "wait"
evict.after = "1s"
evict.how = "hook"
evict.suspend = [%[1]q]
evict.resume = [%[1]q]
evict.idle_after = "1s"
evict.return = "never"
`, hook)})
	return m, func() []string {
		data, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Fields(string(data))
	}
}

// ready returns a program that has a context.
func ready(m *rig.Machine) *rig.Program {
	m.T.Helper()
	p := bare(m)
	p.Want("context c", "ok")
	return p
}

// having returns a program that has allocated n GiB.
func having(m *rig.Machine, n int) *rig.Program {
	m.T.Helper()
	p := ready(m)
	p.Want(fmt.Sprintf("alloc a %dG", n), "ok")
	return p
}

// waitedLong waits until the only request in the queue has waited for some seconds.
func waitedLong(m *rig.Machine, seconds int) {
	m.T.Helper()
	rig.Eventually(m.T, fmt.Sprintf("the request has waited for %d s", seconds), func() bool {
		q := m.Snapshot().Queue
		return len(q) == 1 && q[0].WaitedMs > int64(seconds)*1000
	})
}

// held returns the processes that hold memory, by the driver's count, and how much.
func held(m *rig.Machine) map[int]uint64 {
	m.T.Helper()
	all := map[int]uint64{}
	for _, h := range m.Held() {
		if h.Bytes > 0 {
			all[h.PID] = h.Bytes
		}
	}
	return all
}

// TestD7LeastRecentlyUsed: of three idle programs the one that was used least recently makes room, although it did not start first. The other
// two keep what they have, and the request is served.
func TestD7LeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	m, asked := evicting(t)
	first, second, third := having(m, 2), having(m, 2), having(m, 2)
	m.Snapshot() // the daemon sees that there were calls, but not when: those until now are older than those after this
	first.Want("alloc b 4K", "ok")
	third.Want("alloc b 4K", "ok")
	waits := ready(m)
	waits.Want("alloc a 3G", "ok")
	if got := asked(); !slices.Equal(got, []string{fmt.Sprint(second.Process())}) {
		t.Errorf("asked are %v; %d was used least recently, and %d and %d later", got, second.Process(), first.Process(), third.Process())
	}
	want := map[int]uint64{first.Process(): 2*gib + 4096, third.Process(): 2*gib + 4096, waits.Process(): 3 * gib}
	if got := held(m); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the driver counts %v, want %v", got, want)
	}
}

// TestD7OnlyThoseNeeded: an idle program that is too small to help is not asked, also if it was used least recently.
func TestD7OnlyThoseNeeded(t *testing.T) {
	t.Parallel()
	m, asked := evicting(t)
	small, large := having(m, 1), having(m, 5)
	waits := ready(m)
	waits.Want("alloc a 6G", "ok")
	if got := asked(); !slices.Equal(got, []string{fmt.Sprint(large.Process())}) {
		t.Errorf("asked are %v, and only %d is needed", got, large.Process())
	}
	if got, want := held(m), (map[int]uint64{small.Process(): gib, waits.Process(): 6 * gib}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the driver counts %v, want %v", got, want)
	}
}

// TestD7NobodyInVain: as long as all idle programs together would not make enough room, none is asked. As soon as they would, they are.
func TestD7NobodyInVain(t *testing.T) {
	t.Parallel()
	m, asked := evicting(t)
	idle, works := having(m, 2), having(m, 4)
	m.Sim("busy", fmt.Sprint(works.Process()), "0", "50")
	rig.Eventually(t, "the device has told that it works", func() bool {
		for _, l := range m.Snapshot().Leases {
			if l.PID == works.Process() && l.Util != nil && *l.Util == 50 {
				return true
			}
		}
		return false
	})
	waits := ready(m)
	waits.Tell("alloc a 5G")
	waitedLong(m, 4)
	if got := asked(); len(got) > 0 {
		t.Errorf("asked are %v, and 4 GiB would be free of 5", got)
	}
	works.Want("free a", "ok")
	works.Want("alloc a 3G", "ok")
	waits.Expect("alloc a ok")
	if got := asked(); !slices.Equal(got, []string{fmt.Sprint(idle.Process())}) {
		t.Errorf("asked are %v, and %d is idle", got, idle.Process())
	}
}

// TestD7WorkInFlight: a program whose kernels keep the device busy makes no call for a long time, and is not asked. Once they have ended it is.
func TestD7WorkInFlight(t *testing.T) {
	t.Parallel()
	m, asked := evicting(t)
	works := having(m, 6)
	m.Sim("busy", fmt.Sprint(works.Process()), "0", "99")
	rig.Eventually(t, "the device has told that it works", func() bool {
		l := m.Snapshot().Leases
		return len(l) == 1 && l[0].Util != nil && *l[0].Util == 99
	})
	waits := ready(m)
	waits.Tell("alloc a 4G")
	waitedLong(m, 5)
	if got := asked(); len(got) > 0 {
		t.Errorf("asked are %v, in the middle of their work", got)
	}
	m.Sim("busy", fmt.Sprint(works.Process()), "0", "0")
	waits.Expect("alloc a ok")
	if got := asked(); !slices.Equal(got, []string{fmt.Sprint(works.Process())}) {
		t.Errorf("asked are %v", got)
	}
}
