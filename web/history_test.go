package web

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the last hour of the states as /history sends it: a line for each job, gaps
// while the daemon is away, and bounds on points and holders. eventlog_test.go has the events.

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// held returns a state with one device of 1,000 bytes and leases.
func held(leases ...figures.LeaseState) *figures.Snapshot {
	return &figures.Snapshot{Devices: []figures.DeviceState{{Index: 0, Total: 1000, Capacity: 900, Reserved: 100}}, Leases: leases}
}

func lease(job uint64, pid int, used accounting.Bytes) figures.LeaseState {
	return figures.LeaseState{Job: job, PID: pid, User: "ann", Command: "train", Used: used}
}

// columnsOf returns /history as lines of text: for each device a line with its capacity, then a
// line for each holder.
func columnsOf(t *testing.T, h *history) (lines []string) {
	t.Helper()
	text, err := h.JSON(&eventLog{})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Times   []int64 `json:"times_ms"`
		Devices []struct {
			Capacity []*int `json:"capacity_bytes"`
			Holders  []struct {
				Job  uint64 `json:"job"`
				PID  int    `json:"pid"`
				Used []*int `json:"used_bytes"`
			} `json:"holders"`
		} `json:"devices"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	spell := func(column []*int) string {
		if len(column) != len(got.Times) {
			t.Errorf("a column of %d, and %d times", len(column), len(got.Times))
		}
		text := ""
		for _, v := range column {
			if v == nil {
				text += " null"
			} else {
				text += fmt.Sprintf(" %d", *v)
			}
		}
		return text
	}
	for _, d := range got.Devices {
		lines = append(lines, "capacity"+spell(d.Capacity))
		for _, h := range d.Holders {
			lines = append(lines, fmt.Sprintf("job %d pid %d%s", h.Job, h.PID, spell(h.Used)))
		}
	}
	return lines
}

// TestHistory checks that processes of a job share a line, that jobs come and go, and that the
// history has a gap while the daemon does not answer.
func TestHistory(t *testing.T) {
	h := newHistory(time.Second, 10)
	h.add(noon, held(lease(1, 10, 5)))
	h.add(noon.Add(1*time.Second), held(lease(1, 10, 5), lease(2, 20, 50), lease(1, 11, 7)))
	h.add(noon.Add(2*time.Second), nil)
	h.add(noon.Add(3*time.Second), held(lease(2, 20, 60)))
	want := []string{"capacity 900 900 null 900", "job 2 pid 20 0 50 null 60", "job 1 pid 10 5 12 null 0"}
	if diff := cmp.Diff(want, columnsOf(t, h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHistoryIsARing checks that the oldest points are dropped.
func TestHistoryIsARing(t *testing.T) {
	h := newHistory(time.Second, 3)
	for i := range 100 {
		h.add(noon.Add(time.Duration(i)*time.Second), held(lease(uint64(i+1), i, 5)))
		if len(h.ring) > 3 {
			t.Fatalf("%d points are kept", len(h.ring))
		}
	}
	want := []string{"capacity 900 900 900", "job 98 pid 97 5 0 0", "job 99 pid 98 0 5 0", "job 100 pid 99 0 0 5"}
	if diff := cmp.Diff(want, columnsOf(t, h)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHistoryOfMany checks that holders beyond the limits are summed up as others, in each point
// and over the hour.
func TestHistoryOfMany(t *testing.T) {
	h := newHistory(time.Second, 100)
	many := func(first, n int) (list []figures.LeaseState) {
		for i := range n {
			list = append(list, lease(uint64(first+i), first+i, accounting.Bytes(1000-i)<<20))
		}
		return list
	}
	h.add(noon, held(many(1, 1000)...))
	for k := range 20 { // few at a time, many in the hour
		h.add(noon.Add(time.Duration(k+1)*time.Second), held(many(2000+10*k, 10)...))
	}
	for _, p := range h.ring {
		if len(p.devices[0].shares) > holdersAtOnce+1 {
			t.Errorf("a point has %d shares", len(p.devices[0].shares))
		}
	}
	d := h.hour().Devices[0]
	if len(d.Holders) != holdersShown+1 || d.Holders[holdersShown].Job != 0 {
		t.Fatalf("%d holders are shown, the last is job %d", len(d.Holders), d.Holders[len(d.Holders)-1].Job)
	}
	for i, p := range h.ring {
		var sum, want accounting.Bytes
		for _, s := range d.Holders {
			sum += *s.Used[i]
		}
		for _, share := range p.devices[0].shares {
			want += share.used
		}
		if sum != want {
			t.Errorf("point %d: %d bytes are shown of %d", i, sum, want)
		}
	}
}
