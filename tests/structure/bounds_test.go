package structure

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// This file holds the table of bounds in docs/threat-model.md to the constants in the code that set these
// bounds.

// bound is a row of the table of bounds in docs/threat-model.md: the number that each cell begins with. 0: the cell is
// not compared.
type bound struct {
	what               string
	process, user, all int
}

// bounds has the rows whose numbers are constants. One user has at most half of each table.
var bounds = []bound{
	{"sessions", 0, statefile.MaxSessions / 2, statefile.MaxSessions},
	{"jobs", 0, statefile.MaxJobs / 2, statefile.MaxJobs},
	{"devices", 0, 0, accounting.MaxGPUs},
	{"leases", 0, statefile.MaxLeases / 2, statefile.MaxLeases},
	{"threads of a lease that hold something", arbiter.MaxThreads, arbiter.MaxThreadsInAll / 2, arbiter.MaxThreadsInAll},
	{"requests that wait", arbiter.MaxTicketsOfProcess, arbiter.MaxTicketsOfUser, arbiter.MaxTickets},
	{"limits that were changed live", 0, statefile.MaxLimits / 2, statefile.MaxLimits},
	{"a message", ipc.MaxRequest, 0, 0},
}

// thousands returns a number as documents write it: 16,384.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// TestBoundsInDocuments compares the table of bounds in docs/threat-model.md with the constants that set them.
func TestBoundsInDocuments(t *testing.T) {
	const page = "docs/threat-model.md"
	_, table, _ := strings.Cut(read(t, page), "\n| what | a process | a user | in all |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, b := range bounds {
		found := false
		for line := range strings.Lines(table) {
			cells := strings.Split(line, "|")
			if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), b.what) {
				continue
			}
			found = true
			for i, want := range []int{b.process, b.user, b.all} {
				first, _, _ := strings.Cut(strings.TrimSpace(cells[i+2])+" ", " ")
				if got := strings.TrimRight(first, ",;"); want != 0 && got != thousands(want) {
					t.Errorf("%s says %q in the row of %s, the code has %s", page, got, b.what, thousands(want))
				}
			}
			break
		}
		if !found {
			t.Errorf("%s has no row of %s", page, b.what)
		}
	}
}
