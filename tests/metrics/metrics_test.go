package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the exported metrics match the devices, the queue and the jobs, in the file as in the command,
// and that dcgm-exporter's files name the running jobs. The expected values are what the test's programs hold.

// machine returns a machine with two devices on which contexts cost no memory.
func machine(t *testing.T, config string) *rig.Machine {
	return rig.New(t, rig.Options{Devices: "100M,50M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n" + config})
}

// program starts the interactive test program; its allocations wait.
func program(m *rig.Machine, flags ...string) *rig.Program {
	m.T.Helper()
	return m.Interact(m.Gpuarb(append(append([]string{"run", "--wait"}, flags...), "--", rig.Build(m.T, "programs/cudaprog-dlsym"))...))
}

// own returns the lines of an export that the request itself does not change.
func own(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !regexp.MustCompile(`^(# (HELP|TYPE) )?(go_|process_|gpuarb_request_seconds)`).MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// value returns the value of a series, spelled as in the text.
func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSuffix(v, "\n")
		}
	}
	t.Errorf("no series %s in\n%s", series, own(text))
	return ""
}

// TestEveryWay: file and command print the same metrics, and these match the device and the queue.
func TestEveryWay(t *testing.T) {
	m := machine(t, "[metrics]\njobs = true\n")
	uuid := m.Snapshot().Devices[0].UUID
	a, b := program(m, "--name", "a job"), program(m)
	a.Want("alloc a 70M", "ok")
	a.Want("stream s", "ok")
	b.Want("alloc b 10M", "ok")
	b.Tell("alloc c 60M")
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })

	text := m.Read("metrics")
	on := func(name, more string) string {
		return fmt.Sprintf(`gpuarb_%s{device="0",%suuid="%s"}`, name, more, uuid)
	}
	for series, want := range map[string]string{
		on("memory_bytes", `kind="used",`):                                       fmt.Sprintf("%g", float64(80<<20)),
		on("memory_bytes", `kind="total",`):                                      fmt.Sprintf("%g", float64(100<<20)),
		on("streams", ""):                                                        "1",
		on("leases", `state="running",`):                                         "1",
		on("leases", `state="waiting",`):                                         "1",
		on("queue_length", ""):                                                   "1",
		on("queue_bytes", ""):                                                    fmt.Sprintf("%g", float64(60<<20)),
		`gpuarb_jobs{state="waiting"}`:                                           "1",
		on("job_memory_bytes", `job_id="1",kind="used",`):                        fmt.Sprintf("%g", float64(70<<20)),
		`gpuarb_job_info{job_id="1",job_name="a job",user="` + rig.User() + `"}`: "1",
	} {
		if got := value(t, text, series); got != want {
			t.Errorf("%s is %s, want %s", series, got, want)
		}
	}
	for _, kind := range []string{"memory", "objects", "session"} { // a request that waits is over as it is queued
		if got := value(t, text, `gpuarb_request_seconds_count{kind="`+kind+`"}`); got == "0" {
			t.Errorf("no requests of kind %s", kind)
		}
	}
	a.Want("free a", "ok")
	b.Expect("alloc c ok")
	if got := value(t, m.Read("metrics"), `gpuarb_wait_seconds_count{outcome="granted",user="`+rig.User()+`"}`); got != "1" {
		t.Errorf("%s requests waited and were granted, want 1", got)
	}
	a.End()
	b.End()
	rig.Eventually(t, "both jobs have ended", func() bool { return len(m.Snapshot().Jobs) == 0 })
	printed := rig.Run(t, m.Gpuarb("metrics"))
	if file := own(m.Read("metrics")); printed.Code != 0 || own(printed.Stdout) != file || file == "" {
		t.Errorf("code %d, %s\nthe command:\n%s\nthe file:\n%s", printed.Code, printed.Stderr, own(printed.Stdout), file)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(printed.Stdout)); err != nil {
		t.Error(err)
	}
	if !strings.Contains(printed.Stdout, "\nprocess_resident_memory_bytes ") || !strings.Contains(printed.Stdout, "\ngo_goroutines ") {
		t.Error("the process itself is not there")
	}
}

// TestJobsWhenAskedFor: series of jobs are exported only while the configuration enables them.
func TestJobsWhenAskedFor(t *testing.T) {
	m := machine(t, "")
	a := program(m)
	a.Want("alloc a 1M", "ok")
	if strings.Contains(m.Read("metrics"), "gpuarb_job_") {
		t.Error("jobs have series although the configuration does not enable them")
	}
	reconfigure(m, "[metrics]\njobs = true\n")
	if !strings.Contains(m.Read("metrics"), "\ngpuarb_job_info{") {
		t.Error("jobs have no series")
	}
	a.End()
}

// reconfigure makes the daemon read another configuration.
func reconfigure(m *rig.Machine, config string) {
	m.T.Helper()
	file := filepath.Join(m.Dir, "gpuarb.toml")
	if err := os.WriteFile(file, []byte("schema_version = 1\n"+config), 0o600); err != nil {
		m.T.Fatal(err)
	}
	n := strings.Count(m.Log(), "configuration read again")
	process, err := os.FindProcess(m.DaemonPID())
	if err == nil {
		err = process.Signal(unix.SIGHUP)
	}
	if err != nil {
		m.T.Fatal(err)
	}
	rig.Eventually(m.T, "the configuration is reloaded", func() bool { return strings.Count(m.Log(), "configuration read again") > n })
}

// TestJobFiles: dcgm-exporter's files name the jobs on each GPU while they run, and stay right when the daemon is killed.
func TestJobFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dcgm")
	m := machine(t, fmt.Sprintf("[dcgm]\njob_mapping_dir = %q\n", dir))
	hold := func(what, first, second string) {
		t.Helper()
		rig.Eventually(t, what, func() bool {
			a, errA := os.ReadFile(filepath.Join(dir, "0"))
			b, errB := os.ReadFile(filepath.Join(dir, "1"))
			return errA == nil && errB == nil && string(a) == first && string(b) == second
		})
	}
	hold("nothing runs", "", "")
	a, b := program(m), program(m)
	a.Want("alloc a 1M", "ok")
	b.Want("alloc b 1M", "ok")
	hold("both run", "1\n2\n", "")
	a.End()
	hold("one runs", "2\n", "")

	m.Kill()
	hold("the daemon is dead", "2\n", "")
	m.Start()
	b.Want("alloc c 1M", "ok")
	hold("the next one knows it", "2\n", "")
	m.Kill()
	b.End()
	m.Start()
	hold("what ended meanwhile is gone", "", "")

	c := program(m)
	c.Want("alloc a 1M", "ok")
	hold("another one", "3\n", "")
	other := filepath.Join(t.TempDir(), "other")
	reconfigure(m, fmt.Sprintf("[dcgm]\njob_mapping_dir = %q\n", other))
	hold("the folder was left", "", "")
	dir = other
	hold("for another one", "3\n", "")
	m.Stop()
	hold("the daemon has stopped", "", "")
	c.End()
}
