package arbitration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that `gpuarb limit --dry-run` says who would be over a limit, and changes nothing. The oracle is the
// same command without --dry-run: programs that are over can allocate nothing more, and others can.

func TestLimitDryRun(t *testing.T) {
	t.Parallel()
	const anne, bert = 61041, 61042
	m := rig.New(t, rig.Options{Devices: "8G,8G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = 0\n[[rule]]\nname = \"each\"\nmatch.user = \"61042\"\nscope = \"job\"\nmemory.max = \"4G\"\n"})
	begin := func(uid int, name, size string) *rig.Program {
		u := m.OtherUser(uid)
		p := m.Interact(u.Gpuarb("run", "--device", "0", "--name", name, "--", u.Program("cudaprog-dlsym")))
		p.Want("alloc a "+size, "ok")
		return p
	}
	small, large := begin(anne, "small", "300M"), begin(anne, "large", "1G")
	first, second := begin(bert, "first", "100M"), begin(bert, "second", "600M")
	job := func(name string) string {
		for _, j := range m.Snapshot().Jobs {
			if j.Name == name {
				return fmt.Sprint(j.ID)
			}
		}
		t.Fatalf("no job %s", name)
		return ""
	}
	blocked := func(p *rig.Program) bool {
		if p.Ask("alloc probe 1M") == errOutOfMemory {
			return true
		}
		p.Want("free probe", "ok")
		return false
	}
	for _, c := range []struct {
		flags, limit string
		says         []string
		over         []*rig.Program // programs that then get nothing new
		within       []*rig.Program
	}{
		{"--user 61041", "memory.max=1G", []string{"GPU 0: the programs of user 61041 would be over a memory.max of 1 GiB; held: 1.2 GiB; 300 MiB must be freed before anything new is granted\n",
			"  user 61041's large (cudaprog-dlsym[", "]): 1 GiB\n  user 61041's small (", "GPU 1: the programs of user 61041 would be within a memory.max of 1 GiB; held: 0 bytes\n"},
			[]*rig.Program{small, large}, []*rig.Program{first, second}},
		{"--user 61041", "memory.max=2G", []string{"GPU 0: the programs of user 61041 would be within a memory.max of 2 GiB; held: 1.2 GiB\n"}, nil, []*rig.Program{small, large}},
		{"--rule each", "memory.max=500M", []string{"GPU 0: user 61042's second (job " + job("second") + ", cudaprog-dlsym) would be over a memory.max of 500 MiB; held: 600 MiB; 100 MiB must be freed before anything new is granted\n",
			"GPU 0: user 61042's first (job " + job("first") + ", cudaprog-dlsym) would be within a memory.max of 500 MiB; held: 100 MiB\n"}, []*rig.Program{second}, []*rig.Program{first, small}},
		{"--job large", "memory.max=10%", []string{"GPU 0: job " + job("large") + " would be over a memory.max of 819 MiB; held: 1 GiB"}, []*rig.Program{large}, []*rig.Program{small, first}},
		{"--job large", "memory.max=max", []string{"GPU 0: job " + job("large") + " would have no memory.max; held: 1 GiB\n"}, nil, []*rig.Program{large}},
	} {
		args := append([]string{"limit"}, append(strings.Fields(c.flags), c.limit)...)
		before := m.Read("leases") + m.Read("budgets")
		r := rig.Run(t, m.OtherUser(anne).Gpuarb(append(args, "--dry-run")...)) // every user may ask
		for _, said := range c.says {
			if r.Code != 0 || !strings.Contains(r.Stdout, said) {
				t.Errorf("%v --dry-run (%d %s) does not say %q:\n%s", args, r.Code, r.Stderr, said, r.Stdout)
			}
		}
		if after := m.Read("leases") + m.Read("budgets"); columnsBut(after, "AGE", "UTIL", "IDLE") != columnsBut(before, "AGE", "UTIL", "IDLE") {
			t.Errorf("%v --dry-run changed something:\n%s%s", args, before, after)
		}
		if r := rig.Run(t, m.Gpuarb(args...)); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		for _, p := range c.over {
			if !blocked(p) {
				t.Errorf("%v: a program that would be over gets more", args)
			}
		}
		for _, p := range c.within {
			if blocked(p) {
				t.Errorf("%v: a program that would be within gets nothing", args)
			}
		}
		off := strings.Replace(c.limit, c.limit[strings.Index(c.limit, "=")+1:], "max", 1)
		if strings.HasPrefix(c.flags, "--rule") {
			off = "memory.max=4G"
		}
		if r := rig.Run(t, m.Gpuarb(append([]string{"limit"}, append(strings.Fields(c.flags), off)...)...)); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	var rows []struct {
		Device int     `json:"device"`
		Limit  string  `json:"limit"`
		Value  *uint64 `json:"value"`
		Held   uint64  `json:"held"`
		Over   uint64  `json:"over"`
	}
	slots := rig.Run(t, m.Gpuarb("limit", "--device", "0", "slots.max=3", "--dry-run", "--json"))
	if err := json.Unmarshal([]byte(slots.Stdout), &rows); err != nil || len(rows) != 1 || rows[0].Limit != "slots.max" || rows[0].Held != 4 || rows[0].Over != 1 {
		t.Errorf("slots: %v %+v\n%s", err, rows, slots.Stderr)
	}
	for line, want := range map[string]string{
		"--user 61041 --dry-run":               "--dry-run: say which limit would be set",
		"--job nobody memory.max=1G --dry-run": `no job is called "nobody"`,
		"--job 999 memory.max=1G --dry-run":    "there is no job 999 (any more)",
	} {
		if r := rig.Run(t, m.Gpuarb(append([]string{"limit"}, strings.Fields(line)...)...)); r.Code == 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("limit %s: %d %s", line, r.Code, r.Stderr)
		}
	}
}

// columnsBut returns a table without some columns.
func columnsBut(table string, without ...string) string {
	var b strings.Builder
	at := map[int]bool{}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if slices.Contains(without, f) {
				at[i] = true
			}
			if !at[i] {
				b.WriteString(f + " ")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
