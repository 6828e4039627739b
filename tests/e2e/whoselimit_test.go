package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a user can see who limits a program, lower the limit, and raise it again up to what the rule or
// root allows. limits_test.go has limits that root sets.

// TestWhoseLimit: a user sees what limits the user's program and who set that limit, lowers it, is told
// the effect, and raises it again up to the rule's limit. The daemon logs each change with its user. All this
// also holds after a restart, and after root has set the limit.
func TestWhoseLimit(t *testing.T) {
	t.Parallel()
	const anne = 61001
	m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: `schema_version = 1
[[rule]]
name = "guests"
match.user = "61001"
memory.max = "200M"
streams.max = 9
`})
	u := m.OtherUser(anne)
	p := u.Bare()
	p.Want("alloc a 150M", "ok")
	pid := fmt.Sprint(p.PID())
	limit := func(code int, stderr string, args ...string) string {
		t.Helper()
		r := rig.Run(t, u.Gpuarb(append([]string{"limit", pid}, args...)...))
		if r.Code != code || strings.TrimSpace(r.Stderr) != stderr {
			t.Errorf("limit %q: %d, %q; want %d, %q", args, r.Code, r.Stderr, code, stderr)
		}
		return r.Stdout
	}
	shows := func(max, by string) {
		t.Helper()
		want := fmt.Sprintf("GPU LIMIT           VALUE      HELD IN-FORCE SET-BY\n"+
			"  0 memory.max  %9s 157286400 yes      %s\n"+
			"  0 streams.max         9         0 yes      rule guests (gpuarb.toml:2) (user 61001)\n", max, by)
		if got := limit(0, "", "--bytes"); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
	rule := "rule guests (gpuarb.toml:2) (user 61001)"
	shows("209715200", rule)
	limit(0, "gpuarb: process "+pid+" holds 150 MiB of a limit of 100 MiB on GPU 0: nothing new until 50 MiB are freed", "memory.max=100M")
	shows("104857600", "user 61001")
	p.Want("alloc b 1", "err 2")
	limit(1, "gpuarb: process "+pid+": memory.max of 201 MiB is above the 200 MiB that is allowed on GPU 0, and only root may raise it beyond that", "memory.max=201M")
	limit(0, "", "memory.max=180M")
	p.Want("alloc b 30M", "ok")
	p.Want("free b", "ok")
	for _, said := range []string{"user 61001 changed memory.max of user 61001's cudaprog-dlsym[" + pid + "] on GPU 0 from 200 MiB to 100 MiB",
		"uid=61001 limit=memory.max", `from="200 MiB" to="100 MiB"`, `from="100 MiB" to="180 MiB"`} {
		m.AwaitLog(said)
	}
	if r := rig.Run(t, m.Gpuarb("limit", pid, "memory.max=300M")); r.Code != 0 {
		t.Errorf("root: %d, %s", r.Code, r.Stderr)
	}
	shows("314572800", "root")
	limit(0, "", "memory.max=160M")
	m.Kill()
	m.Start()
	rig.Eventually(t, "the session is resumed", func() bool { return len(m.Snapshot().Leases) == 1 })
	shows("167772160", "user 61001")
	limit(0, "", "memory.max=300M")
	shows("314572800", "user 61001")
	p.Want("alloc b 150M", "ok")
	p.Want("alloc c 1", "err 2")
	p.End()
}
