package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold which limit a program has: of its job, its process, its rule, its environment, or none without a
// daemon; and that its queries for memory show that limit. tests/arbitration has programs that wait for each other.

// TestJobSharesOneBudget: memory that one program of a job holds is not available to the other programs,
// and its idle credit is reclaimed for them.
func TestJobSharesOneBudget(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	fifo := filepath.Join(m.Dir, "to-b")
	a := m.Interact(m.Gpuarb("run", "--memory", "64M", "--", "sh", "-c",
		`mkfifo "$2" && { "$1" <"$2" >&3 2>/dev/null & exec "$1" 3>&-; } 3>"$2.out"`, "sh", cudaprog(t, "dlsym"), fifo))
	toB, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := func(command, want string) {
		t.Helper()
		if _, err := fmt.Fprintln(toB, command); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "the second program says "+want, func() bool {
			said, err := os.ReadFile(fifo + ".out")
			return err == nil && strings.HasSuffix(strings.TrimSpace(string(said)), want)
		})
	}
	a.Want("alloc x 40M", "ok")
	b("alloc y 25M", "alloc y err 2")
	b("alloc z 24M", "alloc z ok")
	a.Want("alloc w 1", "err 2")
	a.Want("free x", "ok") // leaves 40 MiB of idle credit in the first program
	b("alloc v 40M", "alloc v ok")
	b("alloc u 1", "alloc u err 2")
	if peak, total := m.SimNumber("peak", "0"), m.SimNumber("total", "0"); peak != 64<<20 || total != 64<<20 {
		t.Errorf("the driver saw %d at most and holds %d, want the budget of both", peak, total)
	}
	_ = toB.Close() // the second program ends, and the job of the first goes on
	a.End()
}

// TestPerProcessBudget: with --per-process each process of a job has a budget of its own; without it the processes share one.
func TestPerProcessBudget(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	for _, c := range []struct {
		flag string
		want string
	}{{"--per-process=true", "64 0 0 64 0 0"}, {"--per-process=false", "64 0 0 0 2 2"}} {
		r := rig.Run(t, m.Gpuarb("run", "--memory", "64M", c.flag, "--", "sh", "-c", `
			mkfifo "$2"
			"$1" "alloc a 64M; hold" <"$2" & exec 3>"$2"
			until [ "$(SIMCUDA_DIR=$SIMCUDA_DIR "$3" total 0)" = 67108864 ]; do :; done
			"$1" "alloc b 64M; alloc c 1"; exec 3>&-; wait`, "sh", cudaprog(t, "dlsym"),
			filepath.Join(m.Dir, "fifo"+c.flag), rig.Build(t, "sim/simcuda")))
		said := strings.Contains(r.Stdout, "alloc b ok")
		if said != (c.flag == "--per-process=true") || !strings.Contains(r.Stdout, "alloc c err 2") && said {
			t.Errorf("%s: %s\n%s", c.flag, r.Stdout, r.Stderr)
		}
	}
}

// TestRulesOfTheConfiguration: rules give programs the limits of the configuration.
func TestRulesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,4G", NoMount: true, Config: `
schema_version = 1
[defaults]
memory.max = "25%"
streams.max = 3
[[device]]
match.index = 0
reserve = "4GiB"
[[rule]]
match.exe = "*/cudaprog-link"
memory.max = "32M"
`})
	p := m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "link")))
	p.Want("alloc a 32M", "ok")
	p.Want("alloc b 1", "err 2")
	p.End()
	p = m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "dlsym"), "--device", "1", "-"))
	p.Want("alloc a 1G", "ok") // a quarter of the second device
	p.Want("alloc b 1", "err 2")
	p.Want("streammany s 4", "ok 3 err 2")
	p.End()
	if r := rig.Run(t, m.Gpuarb("run", "--memory", "3G", "--", "true")); r.Code != 125 && os.Geteuid() != 0 {
		t.Errorf("more than the rule allows: exit status %d\n%s", r.Code, r.Stderr)
	}
	nobody := m.Command(append(m.Env(), "GPUARB_SOCKET="+m.Socket), "setpriv", "--reuid=65534", "--regid=65534",
		"--clear-groups", filepath.Join(portable(t, m), "gpuarb"), "run", "--memory", "3G", "--", "true")
	mistake{"more than the rule allows", nobody, []string{"3 GiB", "2 GiB"}, 125}.check(t)
}

// TestReserveIsNeverGranted: with half of the device reserved, programs get the other half and
// no more, including their contexts.
func TestReserveIsNeverGranted(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[[device]]\nmatch.index = 0\nreserve = \"50%\"\n"})
	p := m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	p.Want("fill a 256M", "ok 16 err 2")
	p.Want("alloc b 1", "err 2")
	p.End()
}

// TestEnvironmentLowersOnly: a variable can lower a program's limit, but not raise it.
func TestEnvironmentLowersOnly(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	for _, c := range []struct {
		memory string
		want   string
	}{{"16M", "ok 16 err 2"}, {"1G", "ok 64 err 2"}, {"0.1%", "ok 8 err 2"}} {
		cmd := m.Gpuarb("run", "--memory", "64M", "--", "env", "GPUARB_MEMORY="+c.memory, cudaprog(t, "dlsym"))
		p := m.Interact(cmd)
		if got := p.Ask("fill a 1M"); got != c.want && !(c.memory == "0.1%" && strings.HasSuffix(got, " err 2") && got != "ok 64 err 2") {
			t.Errorf("GPUARB_MEMORY=%s: %s, want %s", c.memory, got, c.want)
		}
		p.End()
	}
	p := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_STREAMS=2"), cudaprog(t, "dlsym")))
	p.Want("streammany s 9", "ok 2 err 2")
	p.End()
}

// TestWithoutADaemon: without a daemon a program runs or is refused, as GPUARB_ON_LOSS says; below gpuarb run it is refused.
func TestWithoutADaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Stopped: true})
	for _, c := range []struct {
		name, env, want string
		lines           int
	}{
		{"open by default", "GPUARB_X=", "ok", 1},
		{"open", "GPUARB_ON_LOSS=open", "ok", 1},
		{"closed", "GPUARB_ON_LOSS=closed", "err 2", 1},
		{"below gpuarb run", "GPUARB_JOB=00112233445566778899aabbccddeeff", "err 2", 1},
		{"disabled", "GPUARB_DISABLE=1", "ok", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := m.Interact(m.Command(append(m.PreloadEnv(), c.env), cudaprog(t, "dlsym")))
			p.Want("alloc a 1M", c.want)
			p.Want("alloc b 1M", c.want)
			if said := p.End(); strings.Count(said, "\n") != c.lines || c.lines > 0 && !strings.Contains(said, m.Socket) {
				t.Errorf("stderr, want %d lines that name the socket:\n%s", c.lines, said)
			}
		})
	}
}

// TestBarredFromTheDaemon: if a program cannot reach a daemon that may exist, the message says what
// prevented it.
func TestBarredFromTheDaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	try := func(name, want string, before ...string) {
		words := append(before, cudaprog(t, "dlsym"))
		p := m.Interact(m.Command(m.PreloadEnv(), words[0], words[1:]...))
		p.Want("alloc a 1M", "ok")
		if said := p.End(); want == "" && said != "" || !strings.Contains(said, want) || strings.Count(said, "\n") > 1 {
			t.Errorf("%s: stderr, want one line with %q:\n%s", name, want, said)
		}
	}
	// A process that is started while another test mounts a filesystem inherits a socket of go-fuse.
	const alone = `exec 3>&- 4>&- 5>&-; exec "$@"`
	for _, descriptors := range []string{"4", "5"} { // none for a socket, and none for the page
		try(descriptors+" descriptors", m.Socket+" (no descriptor is free): ", "sh", "-c", alone, "sh", "prlimit", "--nofile="+descriptors)
	}
	try("enough descriptors", "", "prlimit", "--nofile=40")
	if err := os.Chmod(m.Socket, 0); err != nil {
		t.Fatal(err)
	}
	var unprivileged []string
	if os.Getuid() == 0 { // root may open every file
		unprivileged = []string{"setpriv", "--bounding-set=-dac_override,-dac_read_search"}
	}
	try("no permission", m.Socket+" (permission denied): ", unprivileged...)
}

// TestMemoryQueriesShowTheBudget: queries show the budget as the device's memory.
func TestMemoryQueriesShowTheBudget(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--memory", "1G", "--", cudaprog(t, "dlsym")))
	p.Want("info", "ok 1073741824 1073741824")
	p.Want("alloc a 1M", "ok")
	p.Want("info", "ok 1072693248 1073741824")
	p.Want("total", "ok 1073741824")
	other := m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	other.Want("alloc a 3G", "ok")
	p.Want("info", "ok 1072693248 1073741824") // the device still has more free memory than the budget
	other.End()
	p.Want("free a", "ok")
	p.Want("info", "ok 1073741824 1073741824")
	p.End()
	p = m.Interact(m.Gpuarb("run", "--memory", "1G", "--", "env", "GPUARB_VIRTUALIZE=0", cudaprog(t, "dlsym")))
	p.Want("total", "ok 8589934592")
	p.Want("info", fmt.Sprintf("ok %d %d", 8<<30-64<<20, 8<<30))
	p.End()
}

// TestFreeFollowsOthers: if the device has less free memory than the budget, the device's free memory is shown. It
// grows when other programs free memory. Reserved memory stays the same.
func TestFreeFollowsOthers(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"0\"\n"})
	other := m.Interact(m.Command(m.PreloadEnv(), cudaprog(t, "dlsym")))
	other.Want("alloc a 5G", "ok")
	p := m.Interact(m.Gpuarb("run", "--memory", "6G", "--", cudaprog(t, "dlsym")))
	kept := m.Interact(m.Gpuarb("run", "--memory", "1G", "--min", "1G", "--", cudaprog(t, "dlsym")))
	says := func(q *rig.Program, free, total int) {
		t.Helper()
		want := fmt.Sprintf("ok %d %d", free<<30, total<<30)
		rig.Eventually(t, want, func() bool { return q.Ask("info") == want })
	}
	says(p, 2, 6)
	says(kept, 1, 1)
	other.Want("free a", "ok")
	other.End()
	says(p, 6, 6)
	p.Want("alloc b 6G", "ok")
	p.Want("info", fmt.Sprintf("ok 0 %d", 6<<30))
	says(kept, 1, 1)
	p.End()
	kept.End()
}
