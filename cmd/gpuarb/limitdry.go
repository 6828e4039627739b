package main

// This file has `gpuarb limit --dry-run`: it computes from a snapshot who would hold more than the
// new limits, and changes nothing. limit.go calls it.

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// limitCheck is a row of `gpuarb limit --dry-run --json`: programs that would share a limit on a
// device, and whether they would be over it.
type limitCheck struct {
	Device report.Index  `json:"device"`
	Limit  string        `json:"limit"`
	Value  *uint64       `json:"value"` // null: no limit
	Held   uint64        `json:"held"`
	Over   uint64        `json:"over"` // what must be freed before anything new is granted
	Who    []limitHolder `json:"holders"`

	whose string // the programs, for messages
	on    string // name of the device
}

// limitHolder is a program that holds a part of what a limit counts.
type limitHolder struct {
	PID     int     `json:"pid"`
	Job     uint64  `json:"job"`
	JobName *string `json:"job_name"`
	UID     uint32  `json:"uid"`
	User    string  `json:"user"`
	Command string  `json:"command"`
	Held    uint64  `json:"held"`
}

// dryRun prints who would be over the limits of a request.
func (a *app) dryRun(s figures.Snapshot, w *limitTarget) error {
	if _, known := w.inForce(s, w.request.ID, w.name); !known {
		return &exitError{exitFailed, w.unknown(s, w.request.ID, w.name)}
	}
	checks := []limitCheck{}
	for _, d := range s.Devices {
		if w.request.Device == ipc.AllDevices || int(w.request.Device) == d.Index {
			checks = append(checks, w.checks(s, d)...)
		}
	}
	if w.request.Set&ipc.SetMin != 0 {
		a.say("memory.min puts no program over a limit; `gpuarb plan --min` says whether there is room to reserve it")
	}
	return a.show(checks, func(to io.Writer) error {
		for i := range checks {
			checks[i].write(to)
		}
		return nil
	})
}

// checks returns the rows of a device.
func (w *limitTarget) checks(s figures.Snapshot, d figures.DeviceState) (rows []limitCheck) {
	r := &w.request
	if r.Set&ipc.SetMax != 0 {
		value := accounting.Bytes(r.Max)
		if r.Max == ipc.NoLimit {
			value = accounting.Max
			if r.MaxShare > 0 {
				value = accounting.Size{PerMille: r.MaxShare}.Of(d.Total)
			}
		}
		rows = append(rows, w.groups(s, d, "memory.max", uint64(value), false, func(l *figures.LeaseState) uint64 { return uint64(l.Used) })...)
	}
	if r.Set&ipc.SetStreams != 0 {
		value := uint64(r.Streams)
		if r.Streams == ipc.NoStreams {
			value = math.MaxUint64
		}
		rows = append(rows, w.groups(s, d, "streams.max", value, true, func(l *figures.LeaseState) uint64 { return uint64(l.Streams) })...)
	}
	if r.Set&ipc.SetSlots != 0 {
		row := limitCheck{Device: report.Index(d.Index), Limit: "slots.max", Value: report.Unless(uint64(r.Slots), 0), Held: uint64(d.SlotsCurrent), Who: []limitHolder{}, whose: "the jobs with work there", on: d.Called()}
		for _, h := range d.Holders {
			row.Who = append(row.Who, limitHolder{h.PID, h.Job, report.Unless(h.JobName, ""), h.UID, h.User, h.Command, uint64(h.Slots)})
		}
		rows = append(rows, row.counted())
	}
	return rows
}

// groups returns a row for the programs of the target on a device, or for each part of them that has
// the limit for itself. each: every lease has it for itself.
func (w *limitTarget) groups(s figures.Snapshot, d figures.DeviceState, limit string, value uint64, each bool, of func(*figures.LeaseState) uint64) []limitCheck {
	rows := map[string]*limitCheck{}
	var order []string
	add := func(key string) *limitCheck {
		if rows[key] == nil {
			rows[key] = &limitCheck{Device: report.Index(d.Index), Limit: limit, Value: report.Unless(value, math.MaxUint64), Who: []limitHolder{}, whose: key, on: d.Called()}
			order = append(order, key)
		}
		return rows[key]
	}
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Device != d.Index || !w.meant(s, l) {
			continue
		}
		row := add(w.group(s, l, each))
		row.Held += of(l)
		row.Who = append(row.Who, limitHolder{l.PID, l.Job, report.Unless(l.JobName, ""), l.UID, l.User, l.Command, of(l)})
	}
	if len(order) == 0 {
		add(w.all())
	}
	all := make([]limitCheck, 0, len(order))
	for _, key := range order {
		all = append(all, rows[key].counted())
	}
	return all
}

// counted fills in Over, and sorts the holders by what they hold.
func (c limitCheck) counted() limitCheck {
	if c.Value != nil && c.Held > *c.Value {
		c.Over = c.Held - *c.Value
	}
	slices.SortStableFunc(c.Who, func(x, y limitHolder) int { return cmp.Compare(y.Held, x.Held) })
	return c
}

// meant reports whether a limit of the target counts a lease.
func (w *limitTarget) meant(s figures.Snapshot, l *figures.LeaseState) bool {
	switch j := s.Job(l.Job); w.kind {
	case ipc.LimitProcess:
		return uint64(l.PID) == w.request.ID
	case ipc.LimitJob:
		return l.Job == w.request.ID
	case ipc.LimitUser:
		return j != nil && uint64(j.UID) == w.request.ID
	case ipc.LimitCgroup:
		return l.InCgroup(w.name)
	case ipc.LimitRule:
		return j != nil && slices.ContainsFunc(s.Rules, func(r figures.RuleState) bool { return r.ID == w.request.ID && r.Title == j.Rule })
	}
	return false
}

// all names all programs of the target.
func (w *limitTarget) all() string {
	switch w.kind {
	case ipc.LimitProcess:
		return fmt.Sprintf("process %d", w.request.ID)
	case ipc.LimitJob:
		return fmt.Sprintf("job %d", w.request.ID)
	case ipc.LimitUser:
		return "the programs of user " + w.name
	case ipc.LimitCgroup:
		return "the programs in cgroup " + w.name
	case ipc.LimitRule:
		return "the programs under rule " + w.name
	}
	return "the programs there"
}

// group names the programs that share the limit with a lease.
func (w *limitTarget) group(s figures.Snapshot, l *figures.LeaseState, each bool) string {
	j := s.Job(l.Job)
	program := owned(l.User, l.JobName, l.Command, l.PID)
	if each || w.kind == ipc.LimitJob && j != nil && j.PerProcess {
		return program
	}
	if w.kind != ipc.LimitRule || j == nil {
		return w.all()
	}
	i := slices.IndexFunc(s.Rules, func(r figures.RuleState) bool { return r.ID == w.request.ID })
	switch scope := s.Rules[i].Scope; {
	case scope == "process" || scope == "job" && j.PerProcess:
		return program
	case scope == "job":
		return wording.Owned(j.User, wording.Job(j.ID, j.Name, j.Command))
	case scope == "user":
		return fmt.Sprintf("%s of user %s", w.all(), j.User)
	case scope == "cgroup":
		return fmt.Sprintf("%s in cgroup %s", w.all(), l.Cgroup)
	}
	return w.all()
}

// namedOver is how many holders of a limit a message names.
const namedOver = 8

// write prints whether the programs would be over the limit, and what each of them holds.
func (c *limitCheck) write(w io.Writer) {
	whose := report.Escape(c.whose)
	switch {
	case c.Value == nil:
		fmt.Fprintf(w, "%s: %s would have no %s; held: %s\n", c.on, whose, c.Limit, c.amount(c.Held))
		return
	case c.Over == 0:
		fmt.Fprintf(w, "%s: %s would be within a %s of %s; held: %s\n", c.on, whose, c.Limit, c.amount(*c.Value), c.amount(c.Held))
		return
	}
	fmt.Fprintf(w, "%s: %s would be over a %s of %s; held: %s; %s must be freed before anything new is granted\n", c.on, whose, c.Limit, c.amount(*c.Value), c.amount(c.Held), c.amount(c.Over))
	for _, h := range c.Who[:min(len(c.Who), namedOver)] {
		fmt.Fprintf(w, "  %s: %s\n", owned(h.User, orEmpty(h.JobName), h.Command, h.PID), c.amount(h.Held))
	}
	if more := len(c.Who) - namedOver; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

// amount formats an amount of what the limit counts.
func (c *limitCheck) amount(n uint64) string {
	if c.Limit == "memory.max" {
		return sizeText(accounting.Bytes(n))
	}
	return strconv.FormatUint(n, 10)
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
