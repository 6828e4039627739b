package top

// This file draws the page of details of the selected row. screen.go calls it; rows.go has the
// rows.

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
)

// maxHolders bounds how many holders of a device are listed.
const maxHolders = 8

// drawDetails draws everything that is known about the selected row.
func (m *Model) drawDetails() []string {
	r := m.selected()
	if r == nil {
		return []string{"It has ended."}
	}
	lines := []string{paint(bold, r.subject())}
	if r.charged {
		return m.wrapped(append(lines, fmt.Sprintf("It belongs to job %d, runs %s, and takes %s of %s, which counts against the job's budget: no limit holds for it, and the job's other programs get so much less.",
			r.job, r.bypass.Without(), report.Amount(r.used), m.deviceName(r.device))))
	}
	if r.kind == unmanagedRow && r.job != 0 {
		return m.wrapped(append(lines, fmt.Sprintf("It belongs to job %d, runs %s, and takes %s of %s outside the job's budget: no limit holds for it.",
			r.job, r.bypass.Without(), report.Amount(r.used), m.deviceName(r.device))))
	}
	if r.kind == unmanagedRow {
		return m.wrapped(append(lines, fmt.Sprintf("It takes %s of %s, and runs without gpuarb: no limit holds for it, and it waits for nothing. `gpuarb run` or `gpuarb enable` would change that.",
			report.Amount(r.used), m.deviceName(r.device))))
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

// subject names what a row shows: "process 4711: ann's python3 train.py".
func (r *row) subject() string {
	whose := fmt.Sprintf("%s's %s", orDash(r.user), report.Named(r.name, r.command))
	if r.kind == jobRow {
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

// leaseLines describe what a process has of each device.
func (m *Model) leaseLines(r *row) (lines []string) {
	for i := range m.state.Leases {
		l := &m.state.Leases[i]
		if l.PID != r.pid && r.kind != jobRow || l.Job != r.job {
			continue
		}
		activity := ""
		if l.UnusedMs >= 1000 {
			activity = ", idle for " + report.Span(l.UnusedMs)
		}
		if l.Util != nil && *l.Util > 0 {
			activity += fmt.Sprintf(", and keeps the device busy for %d%% of the time", *l.Util)
		}
		lines = append(lines, fmt.Sprintf("%s: process %d is %s%s; uses %s, at most %s so far, %s overhead; %d of %d streams, %s; %d admitted, %d denied",
			m.deviceName(l.Device), l.PID, report.Escape(string(l.State)), activity, report.Amount(l.Used), report.Amount(l.Peak), report.Amount(l.Overhead),
			l.Streams, l.StreamsMax, report.Count(l.Contexts, "context"), l.Admitted, l.Denied))
	}
	return lines
}

// limitLines list the limits in force, and what set each.
func (m *Model) limitLines(r *row) []string {
	limits, known := report.ProcessLimits(m.state, r.pid)
	if r.kind != leaseRow || !known {
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

// queueLines list the waiting requests of the row's job, with their places.
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

// whyLines say what limits the row's job, what it waits for, and what to do.
func (m *Model) whyLines(r *row) []string {
	var why bytes.Buffer
	whys := report.Whys(m.state, func(j figures.JobState) bool { return j.ID == r.job })
	if err := report.WriteWhy(&why, whys); err != nil || len(whys) == 0 {
		return nil
	}
	return append([]string{"", paint(bold, "Why")}, split(why.String())...)
}

// deviceName returns the name of a device for users, such as "GPU 0" or "the processor". For an
// unknown index it returns "the devices".
func (m *Model) deviceName(index int) string {
	if d := m.state.Device(index); d != nil {
		return d.Called()
	}
	return "the devices"
}

// holderLines list the largest holders of the device that the row waits for.
func (m *Model) holderLines(r *row) []string {
	holders := slices.DeleteFunc(rowsOf(&m.state), func(h row) bool {
		return h.job == r.job && h.job != 0 || h.kind == ticketRow || r.ticket.Device >= 0 && h.device != r.ticket.Device
	})
	slices.SortStableFunc(holders, func(a, b row) int { return cmp.Compare(b.used, a.used) })
	lines := []string{"", paint(bold, "Who holds "+m.deviceName(r.ticket.Device))}
	for i := range holders[:min(len(holders), maxHolders)] {
		h := &holders[i]
		lines = append(lines, fmt.Sprintf("  %8s  %-10s PID %d, %s, for %s: %s", report.Amount(h.used), orDash(h.user), h.pid, report.Escape(h.state),
			report.Span(h.ageMs), report.Named(h.name, h.command)))
	}
	if more := len(holders) - maxHolders; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}
