package report

import (
	"fmt"
	"io"

	"github.com/gpuarb/gpuarb/figures"
)

// pressureText is a memory.pressure file, in the format of the kernel's.
func pressureText(p figures.PressureState) string {
	line := func(name string, l figures.PressureLine) string {
		return fmt.Sprintf("%s avg10=%.2f avg60=%.2f avg300=%.2f total=%d\n", name, l.Avg10, l.Avg60, l.Avg300, l.TotalUs)
	}
	return line("some", p.Some) + line("full", p.Full)
}

// requestCounts writes what became of requests, one "key value" per line: refusals by reason, and waits by outcome, of which
// those that lasted at most so long count in each class that is as long or longer.
func requestCounts(w io.Writer, c figures.RequestCounts) {
	for _, r := range c.Refused {
		fmt.Fprintf(w, "refused.%s %d\n", r.Reason, r.Count)
	}
	for _, o := range c.Waits {
		for _, class := range o.UpTo {
			fmt.Fprintf(w, "wait.%s.le_%s %d\n", o.Outcome, classText(class.Ms), class.Count)
		}
		fmt.Fprintf(w, "wait.%s.count %d\nwait.%s.sum_ms %d\n", o.Outcome, o.Count, o.Outcome, o.SumMs)
	}
}

func classText(ms uint64) string {
	if ms%1000 == 0 {
		return fmt.Sprintf("%ds", ms/1000)
	}
	return fmt.Sprintf("%dms", ms)
}
