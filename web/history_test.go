package web

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the states of the last hour, day and week as /history sends them: a line for each job, gaps
// while the daemon is away, and bounds on points and holders. eventlog_test.go has the events.

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// held returns a state with one device of 1,000 bytes, of which 150 are reserved and not used, and leases.
func held(leases ...figures.LeaseState) *figures.Snapshot {
	d := figures.DeviceState{Index: 0, Total: 1000, Capacity: 900, Reserved: 200}
	for _, l := range leases {
		d.Used += l.Used
	}
	d.Granted, d.Committed = d.Used, d.Used+150
	return &figures.Snapshot{Devices: []figures.DeviceState{d}, Leases: leases}
}

func lease(job uint64, pid int, used accounting.Bytes) figures.LeaseState {
	return figures.LeaseState{Job: job, PID: pid, User: "ann", Command: "train", Used: used}
}

// spellHistory returns /history as lines of text: for each device a line with its capacity, its unused
// reservations and its peaks, then a line for each job and for each user.
func spellHistory(t *testing.T, h *history, of int) (lines []string) {
	t.Helper()
	text, err := historyJSON(h.rings[of].span, h.points(of), &eventLog{})
	if err != nil {
		t.Fatal(err)
	}
	type series struct {
		Job  uint64 `json:"job"`
		PID  int    `json:"pid"`
		User string `json:"user"`
		Used []*int `json:"used_bytes"`
	}
	var got struct {
		Times   []int64 `json:"times_ms"`
		Devices []struct {
			Capacity []*int   `json:"capacity_bytes"`
			Unused   []*int   `json:"reserved_unused_bytes"`
			Peak     []*int   `json:"peak_bytes"`
			Holders  []series `json:"holders"`
			Users    []series `json:"users"`
		} `json:"devices"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	spell := func(name string, column []*int) {
		if len(column) != len(got.Times) {
			t.Errorf("a column of %d, and %d times", len(column), len(got.Times))
		}
		for _, v := range column {
			if v == nil {
				name += " null"
			} else {
				name += fmt.Sprintf(" %d", *v)
			}
		}
		lines = append(lines, name)
	}
	for _, d := range got.Devices {
		spell("capacity", d.Capacity)
		spell("unused", d.Unused)
		spell("peak", d.Peak)
		for _, h := range d.Holders {
			spell(fmt.Sprintf("job %d pid %d", h.Job, h.PID), h.Used)
		}
		for _, u := range d.Users {
			spell("user "+u.User, u.Used)
		}
	}
	return lines
}

// hourOf makes a history of one span.
func hourOf(step time.Duration, points int) *history {
	return newHistory(span{"hour", step, points})
}

// TestHistory checks that processes of a job share a line, that jobs come and go, and that the
// history has a gap while the daemon does not answer.
func TestHistory(t *testing.T) {
	h := hourOf(time.Second, 10)
	bobs := lease(2, 20, 60)
	bobs.User = "bob"
	h.add(noon, held(lease(1, 10, 5)))
	h.add(noon.Add(1*time.Second), held(lease(1, 10, 5), lease(2, 20, 50), lease(1, 11, 7)))
	h.add(noon.Add(2*time.Second), nil)
	h.add(noon.Add(3*time.Second), held(bobs))
	want := []string{"capacity 900 900 null 900", "unused 150 150 null 150", "peak 5 62 null 60", "job 2 pid 20 0 50 null 60", "job 1 pid 10 5 12 null 0",
		"user ann 5 62 null 0", "user bob 0 0 null 60"}
	if diff := cmp.Diff(want, spellHistory(t, h, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHistoryIsARing checks that the oldest points are dropped.
func TestHistoryIsARing(t *testing.T) {
	h := hourOf(time.Second, 3)
	for i := range 100 {
		h.add(noon.Add(time.Duration(i)*time.Second), held(lease(uint64(i+1), i, 5)))
		if len(h.rings[0].kept) > 3 {
			t.Fatalf("%d points are kept", len(h.rings[0].kept))
		}
	}
	want := []string{"capacity 900 900 900", "unused 150 150 150", "peak 5 5 5", "job 98 pid 97 5 0 0", "job 99 pid 98 0 5 0", "job 100 pid 99 0 0 5", "user ann 5 5 5"}
	if diff := cmp.Diff(want, spellHistory(t, h, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHistoryHasAGap checks that a time without points, such as while the machine was suspended, is
// a gap.
func TestHistoryHasAGap(t *testing.T) {
	h := hourOf(time.Second, 9)
	h.add(noon, held(lease(1, 10, 5)))
	h.add(noon.Add(time.Hour), held(lease(1, 10, 7)))
	if got := spellHistory(t, h, 0)[3]; got != "job 1 pid 10 5 null 7" {
		t.Errorf("an hour without points is %q", got)
	}
}

// TestHistoryOfLongSpans checks that a longer span has averages over its steps, with the peak of
// each step, that a job without use in a part of a step counts as 0 there, and that a step without
// an answer is a gap.
func TestHistoryOfLongSpans(t *testing.T) {
	h := newHistory(span{"hour", time.Second, 100}, span{"day", 4 * time.Second, 3}, span{"week", 8 * time.Second, 3})
	at := noon
	add := func(s *figures.Snapshot) {
		at = at.Add(time.Second)
		h.add(at, s)
	}
	for i := range 4 { // until noon and 4 s
		add(held(lease(1, 10, accounting.Bytes(300-100*i))))
	}
	for range 4 { // until noon and 8 s
		add(nil)
	}
	add(held(lease(1, 10, 40)))
	add(nil)
	add(nil)
	add(held(lease(2, 20, 80)))
	want := []string{"capacity 900 null 900", "unused 150 null 150", "peak 300 null 80", "job 1 pid 10 150 null 20", "job 2 pid 20 0 null 40", "user ann 150 null 60"}
	if diff := cmp.Diff(want, spellHistory(t, h, 1)); diff != "" {
		t.Errorf("the middle span (-want +got):\n%s", diff)
	}
	// It begins with a gap up to the time at which recording began, and ends with the unfinished step.
	want = []string{"capacity null 900 900", "unused null 150 150", "peak null 300 80", "job 1 pid 10 null 150 20", "job 2 pid 20 null 0 40", "user ann null 150 60"}
	if diff := cmp.Diff(want, spellHistory(t, h, 2)); diff != "" {
		t.Errorf("the longest span (-want +got):\n%s", diff)
	}
	for range 100 {
		add(held())
	}
	if n := len(h.points(1)); n != 3 {
		t.Errorf("%d points are kept, of 3", n)
	}
}

// TestHistoryBeginsWithThePast checks that a longer span begins with the minutes of the history,
// which are asked for once, and that nothing is missing while the history does not answer.
func TestHistoryBeginsWithThePast(t *testing.T) {
	day := span{"day", 2 * time.Minute, 720}
	asked := 0
	p := past{of: day, ask: func(_ context.Context, since, until time.Time, each func(rows.Minute)) error {
		if asked++; !since.Equal(noon.Add(-time.Hour)) || !until.Equal(noon) {
			t.Errorf("asked for %v to %v", since, until)
		}
		for i := range int64(4) {
			for device := range 2 {
				each(rows.Minute{Minute: noon.Unix()/60 - 10 + i, Device: device, Used: uint64(100 * (i + 1)), Reserved: 50, Grantable: 20, Unmanaged: 7, Total: 1000})
			}
		}
		return nil
	}}
	for range 2 {
		var got []string
		for _, at := range p.points(t.Context(), noon.Add(-time.Hour), noon) {
			text := at.at.UTC().Format("15:04")
			for _, d := range at.devices {
				text += fmt.Sprintf(" %d:%d/%d+%d peak %d %d", d.index, d.used, d.capacity, d.unused, d.peak, d.jobs[0].used)
			}
			got = append(got, text)
		}
		// A gap up to the first minute, then two steps.
		want := []string{"11:51", "11:52 0:150/220+50 peak 200 150 1:150/220+50 peak 200 150", "11:54 0:350/420+50 peak 400 350 1:350/420+50 peak 400 350"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	if rest := p.points(t.Context(), noon.Add(-7*time.Minute), noon); len(rest) != 1 {
		t.Errorf("%d points are left of the last seven minutes", len(rest))
	}
	hour := past{of: span{"hour", time.Minute, 60}, ask: p.ask}
	if all := hour.points(t.Context(), noon.Add(-time.Hour), noon); len(all) != 5 || all[4].devices[0].used != 400 || !all[4].at.Equal(noon.Add(-6*time.Minute)) {
		t.Errorf("the hour begins with %v", all)
	}
	away := past{of: day, ask: func(context.Context, time.Time, time.Time, func(rows.Minute)) error { return errAway }}
	if got := away.points(t.Context(), noon, noon); len(got) > 0 || away.known {
		t.Errorf("without an answer there are %v", got)
	}
}

// crowd returns the leases of n jobs and 100 users on each device.
func crowd(devices, first, n int) *figures.Snapshot {
	s := &figures.Snapshot{}
	for device := range devices {
		s.Devices = append(s.Devices, figures.DeviceState{Index: device, Total: 80 << 30, Capacity: 80 << 30})
		for i := range n {
			l := lease(uint64(first+i), first+i, accounting.Bytes(n-i)<<20)
			l.Device, l.User = device, fmt.Sprint("user", i%100)
			l.Command = fmt.Sprintf("%d %s", first+i, strings.Repeat("x", 300))
			s.Leases = append(s.Leases, l)
		}
	}
	return s
}

// TestHistoryOfMany checks that holders beyond the limits are summed up as others, in each point
// and over the span.
func TestHistoryOfMany(t *testing.T) {
	h := hourOf(time.Second, 100)
	h.add(noon, crowd(1, 1, 1000))
	for k := range 20 { // few at a time, many in the hour
		h.add(noon.Add(time.Duration(k+1)*time.Second), crowd(1, 2000+10*k, 10))
	}
	points := h.points(0)
	for _, p := range points {
		if d := &p.devices[0]; len(d.jobs) > mostInPoint+1 || len(d.users) > mostInPoint+1 {
			t.Errorf("a point has %d jobs and %d users", len(d.jobs), len(d.users))
		}
	}
	d := columnsOf(spans[0], points).Devices[0]
	if len(d.Holders) != mostInAnswer+1 || d.Holders[mostInAnswer].Job != 0 || len(d.Users) != mostInPoint+1 || d.Users[mostInPoint].User != "" {
		t.Fatalf("%d jobs and %d users are shown, the last is job %d", len(d.Holders), len(d.Users), d.Holders[len(d.Holders)-1].Job)
	}
	for i, p := range points {
		var ofJobs, ofUsers, want accounting.Bytes
		for _, s := range d.Holders {
			ofJobs += *s.Used[i]
		}
		for _, s := range d.Users {
			ofUsers += *s.Used[i]
		}
		for _, share := range p.devices[0].jobs {
			want += share.used
		}
		if ofJobs != want || ofUsers != want {
			t.Errorf("point %d: %d bytes of jobs and %d of users are shown, of %d", i, ofJobs, ofUsers, want)
		}
	}
}

// TestHistoryIsSmall fills all spans on a machine with 10,000 leases on eight devices whose largest
// jobs change in each step of the longest span, and checks what that takes.
func TestHistoryIsSmall(t *testing.T) {
	h := newHistory(spans...)
	h.add(noon, crowd(8, 1, 1250))
	for i := range 720 * len(spans) {
		h.rings[i%len(spans)].push(pointOf(noon.Add(time.Duration(i)*time.Second), crowd(8, 1+i*30, 30)))
	}
	runtime.GC()
	var with, without runtime.MemStats
	runtime.ReadMemStats(&with)
	text, err := historyJSON(spans[0], h.points(0), &eventLog{})
	if err != nil {
		t.Fatal(err)
	}
	h = nil
	runtime.GC()
	runtime.GC() // handles of package unique go in the second round
	runtime.ReadMemStats(&without)
	kept := with.HeapAlloc - without.HeapAlloc
	t.Logf("all spans take %d MiB, and an answer has %d MiB", kept>>20, len(text)>>20)
	if kept > 64<<20 || len(text) > 8<<20 {
		t.Errorf("all spans take %d bytes, and an answer has %d", kept, len(text))
	}
}
