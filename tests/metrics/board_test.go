package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that each query of the Grafana board and of the alerts names only series that a daemon exports, and
// that the reference page has exactly the exported metrics. query_test.go reads the queries, and form_test.go checks
// the board's layout.

// everything returns the export of a daemon in a state in which each metric has a series.
func everything(t *testing.T) exports {
	t.Helper()
	m := machine(t, `
[metrics]
jobs = true
[defaults]
slots.max = 4
[[rule]]
match.user = "*"
memory.max = "60M"
`)
	if r := rig.Run(t, m.Gpuarb("limit", "--user", rig.User(), "memory.max=90M")); r.Code != 0 {
		t.Fatal(r)
	}
	box := m.Cgroup()
	for _, c := range []*rig.Cgroup{box, m.Below(box, "inside")} {
		if r := rig.Run(t, m.Gpuarb("job", "open", "--cgroup", c.Path, "--memory", "1M")); r.Code != 0 {
			t.Fatal(r)
		}
	}
	p := program(m)
	p.Want("alloc a 1M", "ok")
	rig.Eventually(t, "the device has told its utilisation", func() bool { return m.Snapshot().Leases[0].Util != nil })
	all := exportsOf(m.Read("metrics"))
	p.End()
	return all
}

// boardQueries returns the queries of the board, by their place in it.
func boardQueries(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("../../daemon/metrics/board/gpuarb.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, v := range board.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			// label_values(SELECTION, LABEL) becomes a query: the selection grouped by the label.
			m := regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`).FindStringSubmatch(fmt.Sprint(q["query"]))
			if m == nil {
				t.Errorf("the variable %s asks for %v", v.Name, q["query"])
				continue
			}
			queries["the variable "+v.Name] = "count by (" + m[2] + ") (" + m[1] + ")"
		}
	}
	for _, p := range board.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %q asks for nothing", p.Title)
		}
		for i, target := range p.Targets {
			queries[fmt.Sprintf("the panel %q, %d", p.Title, i)] = target.Expr
		}
	}
	if len(queries) < 20 {
		t.Errorf("only %d queries on the board", len(queries))
	}
	return queries
}

// alertQueries returns the queries of the alerts.
func alertQueries(t *testing.T) map[string]string {
	t.Helper()
	rules, err := os.ReadFile("../../daemon/metrics/board/gpuarb.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	queries := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ {6}- alert: (\w+)\n {8}expr: (.+)\n`).FindAllStringSubmatch(string(rules), -1) {
		queries["the alert "+m[1]] = m[2]
	}
	if n := strings.Count(string(rules), "alert:"); n != len(queries) || n != strings.Count(string(rules), "expr:") || n < 10 {
		t.Errorf("%d alerts, and %d queries were found", n, len(queries))
	}
	return queries
}

// TestBoardAndAlerts compares each query of the board and the alerts with the series that a daemon exports, and those with the reference.
func TestBoardAndAlerts(t *testing.T) {
	all := everything(t)
	for where, query := range boardQueries(t) {
		if err := all.check(query); err != nil {
			t.Errorf("%s: %s: %v", where, query, err)
		}
	}
	for where, query := range alertQueries(t) {
		if err := all.check(query); err != nil {
			t.Errorf("%s: %s: %v", where, query, err)
		}
	}
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(gpuarb_[a-z_]+)` \\| (gauge|counter|histogram) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = true
		if all[m[1]] == nil && all[m[1]+"_bucket"] == nil {
			t.Errorf("%s is in the reference, and no daemon exports it", m[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		family := regexp.MustCompile(`^(gpuarb_(?:wait|request)_seconds)_(bucket|sum|count)$`).ReplaceAllString(name, "$1")
		if strings.HasPrefix(name, "gpuarb_") && !documented[family] {
			t.Errorf("%s is exported, and not in the reference", name)
		}
	}
}

// TestBoardByMachine: no panel adds up what belongs to a device or a user of one machine with that of another machine.
func TestBoardByMachine(t *testing.T) {
	for where, query := range boardQueries(t) {
		for _, m := range regexp.MustCompile(`\bby \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
			labels := strings.Split(m[1], ", ")
			for _, own := range []string{"device", "uuid", "user", "job_id", "state"} {
				if slices.Contains(labels, own) && !slices.Contains(labels, "instance") && !strings.HasPrefix(where, "the variable") {
					t.Errorf("%s adds up the %s of several machines: %s", where, own, query)
				}
			}
		}
	}
}

// TestCheck checks the checker itself against mistakes that a contributor could make.
func TestCheck(t *testing.T) {
	all := exportsOf(`# HELP a_bytes x
a_bytes{device="0",kind="used"} 1
b_total 3e+09
h_seconds_bucket{user="ann",le="+Inf"} 1
`)
	for _, query := range []string{
		`a_bytes`, `sum by (device, instance) (rate(b_total[5m])) / on (device) a_bytes{kind="used",instance=~"$instance"} > 0.1`,
		`histogram_quantile(0.9, sum by (le) (rate(h_seconds_bucket{job="x y",user!="bob"}[$__rate_interval]))) or vector(0)`,
	} {
		if err := all.check(query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{
		``, `1`, `c_bytes`, `a_byte`, `a_bytes{kinds="used"}`, `a_bytes{kind="usd"}`, `sum by (user) (a_bytes)`, `a_bytes / on (user) b_total`,
	} {
		if all.check(query) == nil {
			t.Errorf("%s passes", query)
		}
	}
}
