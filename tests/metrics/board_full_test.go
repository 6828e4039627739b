//go:build full

package metrics

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file asks a real Prometheus, which scrapes two machines, each query of the board, for `make test-full`. The
// expected sums are those of the simulated drivers. rules_full_test.go has promtool.

// server is a running Prometheus.
type server struct {
	t   *testing.T
	url string
}

// startServer starts a Prometheus that scrapes the metrics of machines each second.
func startServer(t *testing.T, machines []*rig.Machine) (s server, instances []string) {
	t.Helper()
	var targets strings.Builder
	for _, m := range machines {
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			text, err := os.ReadFile(filepath.Join(m.Mount, "metrics"))
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write(text)
		}))
		t.Cleanup(page.Close)
		address := strings.TrimPrefix(page.URL, "http://")
		instances = append(instances, address)
		fmt.Fprintf(&targets, "          - %q\n", address)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	dir := t.TempDir()
	config := "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: gpuarb\n    static_configs:\n      - targets:\n" + targets.String()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := bounded.Command(t, bounded.Lifetime, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return server{t, "http://" + address}, instances
}

// sample is one series of an answer, with its value.
type sample struct {
	Metric map[string]string
	Value  float64
}

// ask evaluates a query as the board does with all machines and devices chosen. It returns nothing while the server does not answer.
func (s server) ask(query string) (all []sample) {
	s.t.Helper()
	query = strings.NewReplacer("$__rate_interval", "20s", "$instance", ".*", "$device", ".*").Replace(query)
	r, err := http.Get(s.url + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || r.StatusCode == http.StatusServiceUnavailable {
		return nil // it starts
	}
	if answer.Status != "success" {
		s.t.Fatalf("%s: %s", query, answer.Error)
	}
	for _, row := range answer.Data.Result {
		v, err := strconv.ParseFloat(fmt.Sprint(row.Value[1]), 64)
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, sample{row.Metric, v})
	}
	return all
}

// scene is a machine with two devices and jobs on both, of which some wait and are refused again and again.
type scene struct {
	m                    *rig.Machine
	holds, small, waiter *rig.Program
}

func newScene(t *testing.T) scene {
	t.Helper()
	m := rig.New(t, rig.Options{Devices: "2G,1G", Config: `
schema_version = 1
[metrics]
jobs = true
[defaults]
slots.max = 8
[[rule]]
match.user = "*"
memory.max = "1900M"
`})
	if r := rig.Run(t, m.Gpuarb("limit", "--user", rig.User(), "memory.max=1900M")); r.Code != 0 {
		t.Fatal(r)
	}
	s := scene{m, program(m, "--device", "0", "--name", "holds", "--min", "1100M"), program(m, "--device", "1", "--name", "small"), program(m, "--device", "0", "--name", "waits")}
	s.holds.Want("alloc a 700M", "ok")
	s.small.Want("alloc a 100M", "ok")
	s.waiter.Want("alloc a 10M", "ok")
	return s
}

// step makes a request that is refused, and another one that waits and is granted.
func (s scene) step() {
	s.small.Want("alloc x 4G", "err 2")
	s.holds.Want("alloc b 700M", "ok")
	s.waiter.Tell("alloc b 500M")
	rig.Eventually(s.m.T, "the request waits", func() bool { return len(s.m.Snapshot().Queue) == 1 })
	s.holds.Want("free b", "ok")
	s.waiter.Expect("alloc b ok")
	s.waiter.Want("free b", "ok")
}

// covers reports whether a query returns series: one for each device of each machine, if that is how it groups.
func (s server) covers(query string, instances []string) bool {
	rows := s.ask(query)
	if !strings.Contains(query, "by (instance, device)") {
		return len(rows) > 0
	}
	seen := map[string]int{}
	for _, row := range rows {
		seen[row.Metric["instance"]+" "+row.Metric["device"]]++
	}
	for _, machine := range instances {
		for _, device := range []string{"0", "1"} {
			if seen[machine+" "+device] != 1 {
				return false
			}
		}
	}
	return true
}

// TestFullBoardOfInstances asks a real Prometheus for a GPU that is divided into MIG instances: the panels that add devices up do not count
// its memory and that of its instances.
func TestFullBoardOfInstances(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "4G,1G,2G,8G", Sim: []string{"SIMCUDA_MIG=1:0,2:0"}})
	p := program(m, "--device", "1")
	p.Want("alloc a 100M", "ok")
	s, _ := startServer(t, []*rig.Machine{m})
	stacks, free := 0.0, 0.0
	for where, query := range boardQueries(t) {
		var to *float64
		switch {
		case strings.HasPrefix(where, `the panel "Memory by what it is"`):
			to = &stacks
		case strings.HasPrefix(where, `the panel "Free memory"`):
			to = &free
		default:
			continue
		}
		rig.Eventually(t, where+" has series", func() bool { return len(s.ask(query)) > 0 })
		for _, row := range s.ask(query) {
			*to += row.Value
		}
	}
	if want := float64(11 << 30); stacks != want {
		t.Errorf("the stacks add up to %g, want %g", stacks, want)
	}
	want := 0.0
	for _, d := range m.Snapshot().Devices[1:] {
		want += float64(d.Free)
	}
	if free != want {
		t.Errorf("%g are free, want %g", free, want)
	}
}

// TestFullBoard asks a real Prometheus each query of the board, for two machines with two devices each. Each returns
// series. A panel of devices has each device of each machine once, and the memory that panels show adds up to what the
// drivers hold.
func TestFullBoard(t *testing.T) {
	scenes := []scene{newScene(t), newScene(t)}
	s, instances := startServer(t, []*rig.Machine{scenes[0].m, scenes[1].m})
	queries := boardQueries(t)
	for where, query := range queries {
		rig.Eventually(t, where+" has series of both machines", func() bool {
			for _, c := range scenes {
				c.step()
			}
			return s.covers(query, instances)
		})
	}
	held, free := 0.0, 0.0
	for _, c := range scenes {
		for d := range 2 {
			held += float64(c.m.SimNumber("total", fmt.Sprint(d)))
			free += float64(c.m.Snapshot().Devices[d].Free)
		}
	}
	for where, want := range map[string]float64{
		`the panel "Memory by what it is", 0`: held, `the panel "Memory by user", 0`: held, `the panel "Memory by job", 0`: held, `the panel "Free memory", 0`: free,
	} {
		rig.Eventually(t, fmt.Sprintf("%s adds up to %g", where, want), func() bool {
			sum := 0.0
			for _, row := range s.ask(queries[where]) {
				sum += row.Value
			}
			return sum == want
		})
	}
	for _, row := range s.ask(queries[`the panel "Memory by job", 0`]) {
		if row.Metric["job_name"] == "" || row.Metric["user"] != rig.User() {
			t.Errorf("a job has the labels %v", row.Metric)
		}
	}
}
