//go:build full

package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file runs promtool, for `make test-full`: on the alerts, on the board's queries and on an export of the daemon.
// board_test.go checks without promtool that the queries name exported series.

// TestFullRules runs promtool on the alerts, the board's queries and the exported text. It also evaluates the alerts on a normal day and on a day with faults.
func TestFullRules(t *testing.T) {
	promtool := func(input string, args ...string) {
		t.Helper()
		cmd := bounded.Command(t, bounded.Patience, "promtool", args...)
		cmd.Stdin = strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	promtool("", "check", "rules", "../../daemon/metrics/board/gpuarb.rules.yml")
	promtool("", "test", "rules", "../../daemon/metrics/board/gpuarb.rules_test.yml")

	var rules strings.Builder
	rules.WriteString("groups:\n  - name: board\n    rules:\n")
	fill := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*", "$device", ".*")
	for _, query := range boardQueries(t) {
		fmt.Fprintf(&rules, "      - {record: board, expr: %q, labels: {n: %q}}\n", fill.Replace(query), fmt.Sprint(rules.Len()))
	}
	file := filepath.Join(t.TempDir(), "board.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool("", "check", "rules", file)

	m := machine(t, "[metrics]\njobs = true\n")
	p := program(m)
	p.Want("alloc a 1M", "ok")
	promtool(own(rig.Run(t, m.Gpuarb("metrics")).Stdout), "check", "metrics")
	p.End()
}
