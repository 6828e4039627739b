package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold what UTIL and IDLE of the table of leases say. The simulated NVML reports the utilisation that the
// tests set; calls are those of real programs.

// leaseOf returns the row of a program in the table of leases, and the same lease in a snapshot.
func leaseOf(t *testing.T, m *rig.Machine) (row map[string]string, l figures.LeaseState) {
	t.Helper()
	table := m.Read("leases")
	row = map[string]string{}
	for _, name := range []string{"PID", "UTIL", "IDLE", "AGE"} {
		row[name] = column(t, table, name)[0]
	}
	return row, m.Snapshot().Leases[0]
}

// idleSeconds returns IDLE of the only lease, in seconds.
func idleSeconds(t *testing.T, m *rig.Machine) int {
	t.Helper()
	row, _ := leaseOf(t, m)
	n, err := strconv.Atoi(row["IDLE"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// restsFor waits until the only lease has been idle for some seconds.
func restsFor(t *testing.T, m *rig.Machine, seconds int) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("the program has been idle for %d s", seconds), func() bool { return idleSeconds(t, m) >= seconds })
}

// TestUtilisation: UTIL is what NVML reports of the process, and IDLE stays at 0 while that is above 0.
func TestUtilisation(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G"})
	p := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	p.Want("alloc a 64M", "ok")
	utilisation := func(want string) {
		t.Helper()
		rig.Eventually(t, "UTIL is "+want, func() bool { row, _ := leaseOf(t, m); return row["UTIL"] == want })
	}
	utilisation("0")
	restsFor(t, m, 2)
	m.Sim("busy", fmt.Sprint(p.PID()), "0", "37")
	utilisation("37")
	var rows []struct {
		Util   *int `json:"util_percent"`
		Unused int  `json:"unused_ms"`
	}
	r := rig.Run(t, m.Gpuarb("ps", "--json"))
	if err := json.Unmarshal([]byte(r.Stdout), &rows); err != nil || len(rows) != 1 || rows[0].Util == nil || *rows[0].Util != 37 || rows[0].Unused > 3000 {
		t.Errorf("%v\n%s", err, r.Stdout)
	}
	if got := column(t, rig.Run(t, m.Gpuarb("ps")).Stdout, "UTIL"); got[0] != "37%" {
		t.Errorf("gpuarb ps shows UTIL %q", got)
	}
	_, began := leaseOf(t, m)
	rig.Eventually(t, "five seconds have passed", func() bool {
		if idle := idleSeconds(t, m); idle > 3 {
			t.Fatalf("a program that computes is idle for %d s", idle)
		}
		_, now := leaseOf(t, m)
		return now.AgeSeconds >= began.AgeSeconds+5
	})
	m.Sim("busy", fmt.Sprint(p.PID()), "0", "0")
	utilisation("0")
	restsFor(t, m, 4)
}

// TestIdle: each call ends IDLE, also one that the daemon is not asked about, and a question; a request that waits is not idle.
func TestIdle(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	p := m.Interact(m.Gpuarb("run", "--wait", "--", cudaprog(t, "dlsym"), "-"))
	p.Want("alloc a 64M", "ok")
	p.Want("alloc b 1M", "ok")
	for _, call := range []string{"alloc c 4K", "free c", "free b", "stream s", "streamdestroy s", "info"} {
		restsFor(t, m, 2)
		_, before := leaseOf(t, m)
		p.Tell(call)
		p.Line()
		if idle := idleSeconds(t, m); idle > 0 {
			t.Errorf("after %q the program is idle for %d s", call, idle)
		}
		if _, after := leaseOf(t, m); call != "stream s" && after.Admitted != before.Admitted {
			t.Errorf("%q asked the daemon, and is to be a call that does not", call)
		}
	}
	restsFor(t, m, 2)
	m.Kill()
	m.Start()
	p.Want("alloc c 4K", "ok")
	if idle := idleSeconds(t, m); idle > 0 {
		t.Errorf("after a call under the next daemon the program is idle for %d s", idle)
	}
	other := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
	other.Want("alloc a 7G", "ok")
	p.Tell("alloc d 2G")
	rig.Eventually(t, "the request waits", func() bool { s := m.Snapshot(); return len(s.Queue) == 1 && s.Queue[0].WaitedMs > 2500 })
	if idle := idleSeconds(t, m); idle > 0 {
		t.Errorf("a program that waits is idle for %d s", idle)
	}
	other.End()
	p.Expect("alloc d ok")
}

// TestUnknownUtilisation: where the driver, or a divided GPU, does not tell, UTIL is "-" and never 0.
func TestUnknownUtilisation(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rig.Options{
		"an old driver":  {Devices: "8G", Sim: []string{"SIMCUDA_NVML_LACKS=utilization"}},
		"a MIG instance": {Devices: "8G,8G", Sim: []string{"SIMCUDA_MIG=1:0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, o)
			p := m.Interact(m.Gpuarb("run", "--", cudaprog(t, "dlsym"), "-"))
			p.Want("alloc a 64M", "ok")
			restsFor(t, m, 2)
			if row, l := leaseOf(t, m); row["UTIL"] != "-" || l.Util != nil {
				t.Errorf("UTIL is %s, %v", row["UTIL"], l.Util)
			}
		})
	}
}

// TestWhyNamesIdleHolders: a program that waits for memory is told which other program holds memory and does nothing, and for how long.
func TestWhyNamesIdleHolders(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	holder := m.Interact(m.Gpuarb("run", "--name", "notebook", "--", cudaprog(t, "dlsym"), "-"))
	holder.Want("alloc a 5G", "ok")
	waits := m.Interact(m.Gpuarb("run", "--name", "trainer", "--wait", "--", cudaprog(t, "dlsym"), "-"))
	waits.Tell("alloc a 4G")
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^ +root's notebook\[%d\] holds 5 GiB and has done nothing for 1\ds$`, holder.PID()))
	why := ""
	rig.Eventually(t, "why names the idle program", func() bool {
		why = rig.Run(t, m.Gpuarb("why", "trainer")).Stdout
		return line.MatchString(why)
	})
	if strings.Contains(why, "trainer[") && strings.Contains(why, "trainer["+fmt.Sprint(waits.PID())+"] holds") {
		t.Errorf("the waiting program is idle:\n%s", why)
	}
	m.Sim("busy", fmt.Sprint(holder.PID()), "0", "37") // a kernel runs, and the program makes no call
	rig.Eventually(t, "why does not name a busy program", func() bool {
		return !strings.Contains(rig.Run(t, m.Gpuarb("why", "trainer")).Stdout, "has done nothing")
	})
}
