package top

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/report"
)

// mostHolders are listed of a device that somebody waits for.
const mostHolders = 8

// drawDetails is all that there is to say about the selected row.
func (m *Model) drawDetails() []string {
	r := m.selected()
	if r == nil {
		return []string{"It has ended."}
	}
	lines := []string{paint(bold, r.subject())}
	if r.is == anUnmanaged && r.job != 0 {
		return m.wrapped(append(lines, fmt.Sprintf("It belongs to job %d, runs %s, and takes %s of %s outside the job's budget: no limit holds for it.",
			r.job, r.bypass.Without(), report.Amount(r.used), m.called(r.device))))
	}
	if r.is == anUnmanaged {
		return m.wrapped(append(lines, fmt.Sprintf("It takes %s of %s, and runs without gpuarb: no limit holds for it, and it waits for nothing. `gpuarb run` or `gpuarb enable` would change that.",
			report.Amount(r.used), m.called(r.device))))
	}
	lines = append(lines, m.leaseLines(r)...)
	lines = append(lines, m.queueLines(r)...)
	lines = append(lines, m.whyLines(r)...)
	if r.ticket != nil {
		lines = append(lines, m.holderLines(r)...)
	}
	lines = append(lines, m.limitLines(r)...)
	return m.wrapped(lines)
}

// subject is what a row is about: "process 4711: ann's python3 train.py".
func (r *row) subject() string {
	whose := fmt.Sprintf("%s's %s", orDash(r.user), report.Named(r.name, r.command))
	if r.is == aJob {
		return fmt.Sprintf("job %d: %s", r.job, whose)
	}
	return fmt.Sprintf("process %d: %s", r.pid, whose)
}

func (m *Model) wrapped(lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, wrap(line, m.width)...)
	}
	return all
}

func split(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }

// leaseLines are what a process has of each device.
func (m *Model) leaseLines(r *row) (lines []string) {
	for i := range m.state.Leases {
		l := &m.state.Leases[i]
		if l.PID != r.pid && r.is != aJob || l.Job != r.job {
			continue
		}
		activity := "idle for " + report.Span(l.IdleMs)
		if l.Active {
			activity = "active for " + report.Span(l.ActiveMs)
		}
		lines = append(lines, fmt.Sprintf("%s: process %d is %s, %s; uses %s, at most %s so far, %s overhead; %d of %d streams, %s; %d admitted, %d denied",
			m.called(l.Device), l.PID, report.Escape(string(l.State)), activity, report.Amount(l.Used), report.Amount(l.Peak), report.Amount(l.Overhead),
			l.Streams, l.StreamsMax, report.Count(l.Contexts, "context"), l.Admitted, l.Denied))
	}
	return lines
}

// limitLines are the limits in force, and who set them.
func (m *Model) limitLines(r *row) []string {
	limits, known := report.ProcessLimits(m.state, r.pid)
	if r.is != aLease || !known {
		limits, known = report.JobLimits(m.state, r.job)
	}
	if !known {
		return nil
	}
	var text bytes.Buffer
	if err := (report.Style{Human: true, Width: m.width - 2}).Limits(&text, limits); err != nil {
		return nil
	}
	lines := []string{"", paint(bold, "Limits")}
	for _, line := range split(text.String()) {
		lines = append(lines, "  "+line)
	}
	return lines
}

// queueLines are the requests of a row's job that wait, with their places.
func (m *Model) queueLines(r *row) []string {
	var lines []string
	for i := range m.state.Queue {
		if t := &m.state.Queue[i]; t.Job == r.job {
			lines = append(lines, fmt.Sprintf("  place %d, ticket %d of process %d: %s, for %s (%s)", t.Pos, t.Ticket, t.PID,
				report.Escape(t.Wants), report.Span(t.WaitedMs), report.Escape(t.Reason)))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{"", paint(bold, "Queue")}, lines...)
}

// whyLines say what a row's job may have, what it waits for, and what to do.
func (m *Model) whyLines(r *row) []string {
	var why bytes.Buffer
	whys := report.Whys(m.state, func(j figures.JobState) bool { return j.ID == r.job })
	if err := report.WriteWhy(&why, whys); err != nil || len(whys) == 0 {
		return nil
	}
	return append([]string{"", paint(bold, "Why")}, split(why.String())...)
}

// called is how people know a device by its index: "GPU 0", "the processor"; "the devices" where it is none.
func (m *Model) called(index int) string {
	if d := m.state.Device(index); d != nil {
		return d.Called()
	}
	return "the devices"
}

// holderLines are those who hold most of the device that is waited for.
func (m *Model) holderLines(r *row) []string {
	holders := slices.DeleteFunc(rowsOf(&m.state), func(h row) bool {
		return h.job == r.job && h.job != 0 || h.is == aTicket || r.ticket.Device >= 0 && h.device != r.ticket.Device
	})
	slices.SortStableFunc(holders, func(a, b row) int { return cmp.Compare(b.used, a.used) })
	lines := []string{"", paint(bold, "Who holds "+m.called(r.ticket.Device))}
	for i := range holders[:min(len(holders), mostHolders)] {
		h := &holders[i]
		lines = append(lines, fmt.Sprintf("  %8s  %-10s PID %d, %s, for %s: %s", report.Amount(h.used), orDash(h.user), h.pid, report.Escape(h.state),
			report.Span(h.ageMs), report.Named(h.name, h.command)))
	}
	if more := len(holders) - mostHolders; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}
