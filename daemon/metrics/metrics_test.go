package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the exported metrics: values against a snapshot that the test makes, form with
// the linter and the pedantic registry of Prometheus, and names against docs/reference/metrics.md.
// tests/metrics reads the metrics of a running daemon.

const gib = accounting.Bytes(1 << 30)

// hostile is a name that must not break the text format.
const hostile = "evil\"\n}\\ \xff name"

func counts(n uint64) figures.RequestCounts {
	return figures.RequestCounts{
		Waits: []figures.WaitCount{
			{Outcome: "granted", UpTo: []figures.ClassWait{{Ms: 10, Count: n}, {Ms: 60_000, Count: n + 2}}, Count: n + 3, SumMs: 90_500},
			{Outcome: "timeout", UpTo: []figures.ClassWait{{Ms: 10}, {Ms: 60_000}}},
		},
		Refused: []figures.ReasonCount{{Reason: "device_full", Count: n}, {Reason: "timeout"}},
	}
}

// sample returns a snapshot with a value for each family.
func sample() figures.Snapshot {
	pressure := figures.PressureState{Some: figures.PressureLine{TotalUs: 1_500_000}, Full: figures.PressureLine{TotalUs: 250_000}}
	return figures.Snapshot{
		Version: "1.2.3",
		Devices: []figures.DeviceState{
			{Index: 0, Vendor: "nvidia", Name: hostile, UUID: "GPU-0", PCI: "0000:01:00.0", Total: 10 * gib, Reserve: gib, Unmanaged: gib, Overhead: gib,
				Capacity: 7 * gib, Free: gib, Used: 2 * gib, Granted: 3 * gib, Reserved: 4 * gib, Committed: 5 * gib, Peak: 6 * gib, Streams: 3, SlotsMax: 4,
				SlotsCurrent: 2, Claims: 1, Admitted: 100, Denied: 7, AtMax: 8, Pressure: pressure},
			{Index: 3, Vendor: "cpu", Capacity: gib, Committed: 2 * gib, Unresponsive: true},
		},
		Leases: []figures.LeaseState{{Device: 0, Job: 7, State: figures.StateRunning, Util: new(30), UnusedMs: 90_000}, {Device: 0, Job: 7, State: figures.StateRunning, Util: new(45), UnusedMs: 500},
			{Device: 3, Job: 7, State: figures.StateRunning, UnusedMs: 2000}, {Device: 3, Job: 9, State: figures.StateLost}},
		Jobs: []figures.JobState{
			{ID: 7, Name: hostile, User: "ann", State: figures.StateWaiting, Pressure: pressure, Devices: []figures.JobDeviceState{
				{Device: 0, Max: gib, Used: 1, Peak: 2, Reserved: 3}, {Device: 3, Max: accounting.Max}}},
			{ID: 9, Inside: 7, State: figures.StateRunning},
			{ID: 10, Bound: "/pod", Devices: []figures.JobDeviceState{{Device: 0, Max: gib, Unmanaged: 5}}},
		},
		Users: []figures.UserState{
			{UID: 5, Name: hostile, Used: gib, Max: 2 * gib, Streams: 4, Pressure: pressure, Counts: counts(1)},
			{UID: 6, Name: "ann", Max: accounting.Max, Counts: counts(0)}, {UID: 7, Name: "ann", Max: accounting.Max}, {UID: 8, Max: accounting.Max},
		},
		Rules: []figures.RuleState{{Name: "2", Devices: []figures.RuleDeviceState{{Device: 0, Max: gib}, {Device: 3, Max: accounting.Max}}},
			{Name: "2", Devices: []figures.RuleDeviceState{{Device: 0, Max: gib}}}},
		Queue:  []figures.TicketState{{Device: 0, WantsBytes: gib, WaitedMs: 500}, {Device: 0, WantsBytes: 1, WaitedMs: 62_000}, {Device: -1, WaitedMs: -5}},
		Stats:  figures.Stats{TotalJobs: 11, Clients: 12, RecalledBytes: 13, ReclaimedLeases: 14, ClampedWords: 15, Malformed: 16},
		Counts: counts(21),
	}
}

func text(t testing.TB, s figures.Snapshot, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := New().Write(&b, s, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestValues compares the exported values with those of the snapshot. Values are in bytes and
// seconds, and names may have any characters.
func TestValues(t *testing.T) {
	all := text(t, sample(), Options{Jobs: true})
	for _, line := range []string{
		`gpuarb_build_info{version="1.2.3"} 1`,
		`gpuarb_device_info{device="0",name="evil\"\n}\\ ` + "\uFFFD" + ` name",pci="0000:01:00.0",uuid="GPU-0",vendor="nvidia"} 1`,
		`gpuarb_device_up{device="0",uuid="GPU-0"} 1`,
		`gpuarb_device_up{device="3",uuid=""} 0`,
		`gpuarb_memory_bytes{device="0",kind="total",uuid="GPU-0"} 1.073741824e+10`,
		`gpuarb_memory_bytes{device="0",kind="set_aside",uuid="GPU-0"} 1.073741824e+09`,
		`gpuarb_memory_bytes{device="0",kind="unmanaged",uuid="GPU-0"} 1.073741824e+09`,
		`gpuarb_memory_bytes{device="0",kind="overhead",uuid="GPU-0"} 1.073741824e+09`,
		`gpuarb_memory_bytes{device="0",kind="capacity",uuid="GPU-0"} 7.516192768e+09`,
		`gpuarb_memory_bytes{device="0",kind="used",uuid="GPU-0"} 2.147483648e+09`,
		`gpuarb_memory_bytes{device="0",kind="granted",uuid="GPU-0"} 3.221225472e+09`,
		`gpuarb_memory_bytes{device="0",kind="reserved",uuid="GPU-0"} 4.294967296e+09`,
		`gpuarb_memory_bytes{device="0",kind="committed",uuid="GPU-0"} 5.36870912e+09`,
		`gpuarb_memory_bytes{device="0",kind="free",uuid="GPU-0"} 2.147483648e+09`,
		`gpuarb_memory_bytes{device="0",kind="peak",uuid="GPU-0"} 6.442450944e+09`,
		`gpuarb_memory_bytes{device="3",kind="free",uuid=""} 0`,
		`gpuarb_streams{device="0",uuid="GPU-0"} 3`,
		`gpuarb_slots{device="0",uuid="GPU-0"} 2`,
		`gpuarb_slots_limit{device="0",uuid="GPU-0"} 4`,
		`gpuarb_claims{device="0",uuid="GPU-0"} 1`,
		`gpuarb_leases{device="0",state="running",uuid="GPU-0"} 2`,
		`gpuarb_leases{device="0",state="waiting",uuid="GPU-0"} 0`,
		`gpuarb_leases{device="3",state="lost",uuid=""} 1`,
		`gpuarb_requests_total{device="0",outcome="granted",uuid="GPU-0"} 100`,
		`gpuarb_requests_total{device="0",outcome="refused",uuid="GPU-0"} 7`,
		`gpuarb_requests_at_capacity_total{device="0",uuid="GPU-0"} 8`,
		`gpuarb_pressure_seconds_total{device="0",kind="some",uuid="GPU-0"} 1.5`,
		`gpuarb_pressure_seconds_total{device="0",kind="full",uuid="GPU-0"} 0.25`,
		`gpuarb_queue_length{device="0",uuid="GPU-0"} 2`,
		`gpuarb_queue_length{device="any",uuid=""} 1`,
		`gpuarb_queue_bytes{device="0",uuid="GPU-0"} 1.073741825e+09`,
		`gpuarb_queue_oldest_seconds{device="0",uuid="GPU-0"} 62`,
		`gpuarb_queue_oldest_seconds{device="any",uuid=""} 0`,
		`gpuarb_wait_seconds_bucket{outcome="granted",user="evil\"\n}\\ ` + "\uFFFD" + ` name",le="0.01"} 1`,
		`gpuarb_wait_seconds_bucket{outcome="granted",user="ann",le="60"} 2`,
		`gpuarb_wait_seconds_bucket{outcome="granted",user="ann",le="+Inf"} 3`,
		`gpuarb_wait_seconds_sum{outcome="granted",user="ann"} 90.5`,
		`gpuarb_wait_seconds_count{outcome="timeout",user="ann"} 0`,
		`gpuarb_refusals_total{reason="device_full"} 21`,
		`gpuarb_refusals_total{reason="timeout"} 0`,
		`gpuarb_user_memory_bytes{user="8"} 0`,
		`gpuarb_user_memory_bytes{user="ann'"} 0`,
		`gpuarb_user_pressure_seconds_total{kind="full",user="ann"} 0`,
		`gpuarb_rule_memory_limit_bytes{device="0",rule="2'",uuid="GPU-0"} 1.073741824e+09`,
		`gpuarb_jobs{state="waiting"} 1`,
		`gpuarb_jobs_opened_total 11`,
		`gpuarb_clients 12`,
		`gpuarb_recalled_bytes_total 13`,
		`gpuarb_reclaimed_leases_total 14`,
		`gpuarb_clamped_words_total 15`,
		`gpuarb_malformed_messages_total 16`,
		`gpuarb_job_info{job_id="9",job_name="",user=""} 1`,
		`gpuarb_job_inside{around="7",job_id="9"} 1`,
		`gpuarb_job_memory_bytes{device="0",job_id="7",kind="reserved",uuid="GPU-0"} 3`,
		`gpuarb_job_memory_bytes{device="0",job_id="10",kind="unmanaged",uuid="GPU-0"} 5`,
		`gpuarb_job_memory_limit_bytes{device="0",job_id="7",uuid="GPU-0"} 1.073741824e+09`,
		`gpuarb_job_utilization_ratio{device="0",job_id="7",uuid="GPU-0"} 0.75`,
		`gpuarb_job_idle_seconds{device="0",job_id="7",uuid="GPU-0"} 0.5`,
		`gpuarb_job_idle_seconds{device="3",job_id="7",uuid=""} 2`,
		`gpuarb_memory_bytes{device="0",kind="grantable",uuid="GPU-0"} 1.073741824e+09`,
		`gpuarb_job_pressure_seconds_total{job_id="7",kind="some"} 1.5`,
	} {
		if !strings.Contains(all, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, none := range []string{`gpuarb_slots_limit{device="3"`, `gpuarb_rule_memory_limit_bytes{device="3"`, `gpuarb_user_memory_limit_bytes{user="ann"`,
		`gpuarb_job_memory_bytes{device="3"`, `gpuarb_job_memory_bytes{device="0",job_id="7",kind="unmanaged"`, `gpuarb_job_memory_limit_bytes{device="3"`} {
		if strings.Contains(all, none) {
			t.Errorf("a line begins with %s", none)
		}
	}
}

// TestLint checks names, help texts and the text format with the linter of Prometheus, and the
// consistency of the metrics with its pedantic registry.
func TestLint(t *testing.T) {
	all := text(t, sample(), Options{Jobs: true})
	problems, err := promlint.New(strings.NewReader(all)).Lint()
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gpuarb_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if err != nil {
		t.Error(err)
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector{newView(sample()), Options{Jobs: true}.families()}); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}

// TestRequests checks that each kind has its series from the start, and that a time equal to a
// bound is counted in its bucket.
func TestRequests(t *testing.T) {
	e := New()
	e.Requests.Took(Memory, 1500*time.Nanosecond)
	e.Requests.Took(Memory, 1501*time.Nanosecond)
	e.Requests.Took(State, 2*time.Second)
	var b bytes.Buffer
	if err := e.Write(&b, sample(), Options{}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`gpuarb_request_seconds_bucket{kind="memory",le="1e-06"} 0`,
		`gpuarb_request_seconds_bucket{kind="memory",le="1.5e-06"} 1`,
		`gpuarb_request_seconds_bucket{kind="memory",le="2e-06"} 2`,
		`gpuarb_request_seconds_sum{kind="state"} 2`,
		`gpuarb_request_seconds_bucket{kind="state",le="1"} 0`,
		`gpuarb_request_seconds_count{kind="state"} 1`,
		`gpuarb_request_seconds_count{kind="limits"} 0`,
	} {
		if !strings.Contains(b.String(), "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if !strings.Contains(string(page), "`"+string(k)+"` (") {
			t.Errorf("the page does not say what the kind %s is", k)
		}
	}
}

// TestBounded checks that many jobs and leases add no series unless the options ask for them, and
// that no series names a process.
func TestBounded(t *testing.T) {
	few, many := sample(), sample()
	for i := range 1000 {
		many.Leases = append(many.Leases, figures.LeaseState{PID: i, Device: 0, Job: uint64(i), State: figures.StateRunning, Command: "python"})
		many.Jobs = append(many.Jobs, figures.JobState{ID: uint64(1000 + i), State: figures.StateRunning, Command: "python"})
		many.Processes = append(many.Processes, figures.ProcessState{PID: i, Command: "python"})
		many.Queue = append(many.Queue, figures.TicketState{PID: i, Command: "python"})
	}
	series := func(s figures.Snapshot, o Options) int { return strings.Count(text(t, s, o), "\ngpuarb_") }
	if a, b := series(few, Options{}), series(many, Options{}); a != b {
		t.Errorf("%d series, and %d with a thousand jobs", a, b)
	}
	if a, b := series(few, Options{Jobs: true}), series(many, Options{Jobs: true}); b < a+3000 {
		t.Errorf("%d series with those of jobs, and %d with a thousand", a, b)
	}
	if strings.Contains(text(t, many, Options{Jobs: true}), "python") {
		t.Error("a command is told")
	}
}

// TestBadWriter checks that Write returns the error of its writer.
func TestBadWriter(t *testing.T) {
	if err := New().Write(badWriter{}, sample(), Options{}); err == nil || err.Error() != "full" {
		t.Errorf("%v", err)
	}
}

type badWriter struct{}

func (badWriter) Write([]byte) (int, error) { return 0, fmt.Errorf("full") }

// TestReference compares docs/reference/metrics.md with the exported metrics: names, types, labels
// and kinds.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(gpuarb_[a-z_]+)` \\| ([a-z]+) \\| ?([a-z_, ]*?) ?\\|").FindAllStringSubmatch(string(page), -1) {
		labels := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		documented[m[1]] = m[2] + " " + strings.Join(labels, ",")
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text(t, sample(), Options{Jobs: true})))
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]string{}
	for name, f := range families {
		if !strings.HasPrefix(name, "gpuarb_") {
			if !regexp.MustCompile(`^(go|process)_`).MatchString(name) {
				t.Errorf("%s is neither gpuarb's nor the process's", name)
			}
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		exported[name] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",")
	}
	if len(families) < len(exported)+20 {
		t.Errorf("only %d families, process and runtime included", len(families))
	}
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		if documented[name] != exported[name] {
			t.Errorf("%s is %q, and the page says %q", name, exported[name], documented[name])
		}
	}
	for name := range documented {
		if exported[name] == "" {
			t.Errorf("the page has %s, and it is not exported", name)
		}
	}
	for _, kind := range memoryKinds {
		if !strings.Contains(string(page), "\n| `"+kind.name+"` | ") {
			t.Errorf("the page does not say what the kind %s is", kind.name)
		}
	}
	for _, state := range states {
		if !strings.Contains(string(page), "`"+string(state)+"`") {
			t.Errorf("the page does not name the state %s", state)
		}
	}
}

// TestEveryStateCounts checks that every state of a lease is exported.
func TestEveryStateCounts(t *testing.T) {
	source, err := os.ReadFile("../../internal/figures/snapshot.go")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\tState\w+ +State = "(\w+)"|^\tState\w+ +State += "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	for _, m := range found {
		if state := figures.State(m[1] + m[2]); !slices.Contains(states, state) {
			t.Errorf("the state %s is not exported", state)
		}
	}
	if len(found) != len(states) {
		t.Errorf("%d states, and %d exported", len(found), len(states))
	}
}
