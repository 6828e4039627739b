package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds when a run ends with a summary line, and what the line says.

// summaryOf returns the last line that a run printed, without the run's name, and with … for a time.
func summaryOf(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	_, line, _ := strings.Cut(lines[len(lines)-1], "): ")
	return regexp.MustCompile(`\b\d[\dhm.]*s\b`).ReplaceAllString(line, "…")
}

// TestSummary: a run ends with a summary line if a request of the run waited or was refused, or if a flag asks for
// it. The line covers all processes of the run, including those that ended earlier.
func TestSummary(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G,8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = 0\n"})
	for name, c := range map[string]struct{ script, want string }{
		"nothing to say": {`"$G" run -- "$P" "alloc a 1G"`, ""},
		"asked for":      {`"$G" run --summary -- "$P" "alloc a 1G; alloc b 2G; free a; alloc c 1G"`, "used at most 3 GiB on GPU 0"},
		"no GPU":         {`"$G" run --summary -- true`, "asked for no GPU memory"},
		"two devices":    {`"$G" run --summary --memory 4G -- "$P" "alloc a 1G; context c 1; alloc b 2G"`, "used at most 1 GiB of 4 GiB on GPU 0, 2 GiB of 4 GiB on GPU 1"},
		"each its own":   {`"$G" run --summary --memory 1G --per-process -- sh -c '"$P" "alloc a 1G"; exit 0'`, "used at most 1 GiB on GPU 0"},
		"refused":        {`"$G" run --memory 1G -- sh -c '"$P" "alloc a 512M; alloc b 1G"; "$P" "alloc a 1G; alloc b 2; alloc c 3"'`, "used at most 1 GiB of 1 GiB on GPU 0; 3 requests refused, the last for 3 bytes: its budget is 1 GiB (--memory)"},
		"never granted":  {`"$G" run --memory 4G -- "$P" "alloc a 5G; alloc b 5G"`, "2 requests refused, the last for 5 GiB: its budget is 4 GiB (--memory)"},
		"in its program": {`GPUARB_MEMORY=2G "$G" run -- "$P" "alloc a 3G"`, "1 request refused, for 3 GiB: its budget is 2 GiB (GPUARB_MEMORY, in the program's environment)"},
		"streams":        {`"$G" run --streams 1 -- "$P" "context c; stream s; stream t"`, "1 request refused: no stream on GPU 0: asked 1, and 1 of 1 (streams.max) are in use"},
		"not wanted":     {`"$G" run --summary=false --memory 1M -- "$P" "alloc a 2M"`, "out of memory on GPU 0: asked 2 MiB, more than the job's 1 MiB budget could ever hold"},
		"quiet":          {`GPUARB_QUIET=1 "$G" run --memory 1M -- "$P" "alloc a 2M"`, ""},
		"status":         {`"$G" run --summary -- sh -c 'exit 7' || echo "x (PID 1): status $?" >&2; true`, "status 7"},
	} {
		if got := summaryOf(stderrOf(t, m, "export P G; "+c.script+" >/dev/null")); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	holder := m.Interact(m.Gpuarb("run", "--device", "0", "--", cudaprog(t, "dlsym"), "-"))
	holder.Want("alloc a 6G", "ok")
	waits := m.Interact(m.Gpuarb("run", "--device", "0", "--wait", "--", cudaprog(t, "dlsym"), "-"))
	waits.Tell("alloc a 4G")
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	holder.Want("free a", "ok")
	waits.Expect("alloc a ok")
	if got := summaryOf(waits.End()); !strings.HasPrefix(got, "used at most 4 GiB on GPU 0; 1 request waited ") {
		t.Errorf("waited: %q", got)
	}

	// After a restart of the daemon the line also says since when the daemon has counted.
	holder.Want("alloc a 3G", "ok")
	holder.Want("alloc b 6G", "err 2")
	m.Kill()
	m.Start()
	holder.Want("alloc c 6G", "err 2")
	if got := summaryOf(holder.End()); !strings.HasPrefix(got, "used at most ") || !strings.Contains(got, " on GPU 0; 1 request refused, for 6 GiB: 5 GiB left of GPU 0's 8 GiB (counted since the daemon was restarted ") {
		t.Errorf("restarted: %q", got)
	}

	// If no daemon runs at the end, only a run with the flag says so.
	for _, asked := range []bool{false, true} {
		flags := []string{"run"}
		if asked {
			flags = append(flags, "--summary")
		}
		p := m.Interact(m.Gpuarb(append(flags, "--", cudaprog(t, "dlsym"), "-")...))
		p.Want("alloc a 16G", "err 2")
		m.Stop()
		if got := strings.Contains(p.End(), "): no summary: the daemon at "+m.Socket+" does not answer"); got != asked {
			t.Errorf("asked %v: told %v", asked, got)
		}
		m.Start()
	}
}

// TestSummaryOfContexts: the summary names what the contexts of a run took beside its memory, at the size that the device
// showed, or at the size that was kept for them.
func TestSummaryOfContexts(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=300M"}})
	p := m.Interact(m.Gpuarb("run", "--summary", "--memory", "4G", "--", cudaprog(t, "dlsym"), "-"))
	p.Want("alloc a 1G", "ok")
	rig.Eventually(t, "the device has shown the context", func() bool { return m.Snapshot().Devices[0].Overhead == 300<<20 })
	if got, want := summaryOf(p.End()), "used at most 1 GiB of 4 GiB on GPU 0 (and 300 MiB for contexts)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// The device may not have been read while a short program ran. Then the known cost of a context was kept for it.
	short := summaryOf(stderrOf(t, m, `"$G" run --summary -- "$P" "alloc a 2G" >/dev/null`))
	if short != "used at most 2 GiB on GPU 0 (and 300 MiB for contexts)" && short != "used at most 2 GiB on GPU 0 (and 300 MiB kept for contexts)" {
		t.Errorf("a short program: %q", short)
	}
}
