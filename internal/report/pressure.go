package report

// This file writes memory.pressure files, and counts of requests for stats.go and fields.go.

import (
	"fmt"
	"io"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// pressureText returns a memory.pressure file in the format of the kernel.
func pressureText(p figures.PressureState) string {
	line := func(name string, l figures.PressureLine) string {
		return fmt.Sprintf("%s avg10=%.2f avg60=%.2f avg300=%.2f total=%d\n", name, l.Avg10, l.Avg60, l.Avg300, l.TotalUs)
	}
	return line("some", p.Some) + line("full", p.Full)
}

// requestCounts writes counts of requests, one "key value" per line: refusals by reason, and waits
// by outcome. A wait counts in each class le_T whose time T is at least the time of the wait.
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
