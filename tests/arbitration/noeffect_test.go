package arbitration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks limits beside lower ones: `gpuarb limit` says which of them holds, tables and metrics show it, and
// programs are held to it.

// TestLimitWithoutEffect: root gives a user 200 MiB while the user's rule gives 80 MiB. The change is accepted with a line that
// names the rule's limit, whether programs run or not; the table marks that limit, the metric has it, and it holds.
func TestLimitWithoutEffect(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]string{
		"user": "memory.max of 200 MiB on GPU 0 has no effect: 80 MiB is in force, by rule lab",
		"job":  "memory.max of 200 MiB on GPU 0 is for all of the user's programs together: each job has 80 MiB at most, by rule lab",
	} {
		m := rig.New(t, rig.Options{Devices: "400M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: fmt.Sprintf(
			"schema_version = 1\n[metrics]\njobs = true\n[[rule]]\nname = \"lab\"\nmatch.user = \"61001\"\nmemory.max = \"80M\"\nscope = %q\n", scope)})
		u := m.OtherUser(61001)
		for _, when := range []string{"before its first program", "beside a program"} {
			r := rig.Run(t, m.Gpuarb("limit", "--user", "61001", "memory.max=200M"))
			if r.Code != 0 || !strings.Contains(r.Stderr, want) {
				t.Errorf("%s, %s: %d, %q, want %q", scope, when, r.Code, r.Stderr, want)
			}
			if when == "before its first program" {
				p := u.Bare()
				p.Want("alloc a 80M", "ok")
				p.Want("alloc b 1", errOutOfMemory)
			}
		}
		if r := rig.Run(t, m.Gpuarb("limit", "--user", "61001", "memory.max=60M")); strings.Contains(r.Stderr, "no effect") || strings.Contains(r.Stderr, "at most") {
			t.Errorf("%s: a limit with an effect: %s", scope, r.Stderr)
		}
		if r := rig.Run(t, m.Gpuarb("limit", "--user", "61001", "memory.max=200M")); r.Code != 0 {
			t.Error(r.Stderr)
		}
		if got := m.Read("metrics"); !strings.Contains(got, "gpuarb_job_memory_limit_bytes{device=\"0\",job_id=\"1\"") ||
			!strings.Contains(got, "} 8.388608e+07\n") || scope == "user" && !strings.Contains(got, "gpuarb_user_memory_limit_bytes{user=\"61001\"} 8.388608e+07\n") {
			t.Errorf("%s: the metrics have another limit in force", scope)
		}
		if scope != "user" {
			continue
		}
		table := limitTable(t, 0, "", rig.Run(t, m.Gpuarb("limit", "--user", "61001")))
		want := "GPU LIMIT VALUE HELD IN-FORCE SET-BY\n0 memory.max 200MiB 80MiB no root\n0 memory.max 80MiB 80MiB yes rule lab (gpuarb.toml:4) (user 61001); shared by user 61001"
		if table != want {
			t.Errorf("got\n%s\nwant\n%s", table, want)
		}
	}
}

// TestExceededSharedBudget: `gpuarb why` says how much must be freed under a limit that is exceeded.
func TestExceededSharedBudget(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "400M", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	p.Want("alloc a 100M", "ok")
	limitTable(t, 0, "gpuarb: root's programs hold 100 MiB of a limit of 40 MiB on GPU 0: nothing new until 60 MiB are freed",
		rig.Run(t, m.Gpuarb("limit", "--user", "root", "memory.max=40M")))
	if why := rig.Run(t, m.Gpuarb("why")).Stdout; !strings.Contains(why, "root's programs hold 100 MiB of a limit of 40 MiB (by root): nothing new until 60 MiB are freed") {
		t.Errorf("why: %s", why)
	}
}
