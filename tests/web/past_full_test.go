//go:build full

package web

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has what the page knows of the time before its process began. It takes minutes, because the history keeps
// minutes.

// TestFullPast: after a restart of the daemon the page shows how much was used before.
func TestFullPast(t *testing.T) {
	t.Parallel()
	m := newMachine(t, rig.Options{Devices: "8G", NoMount: true, Config: config(freeAddress(t))})
	url := m.url()
	p := m.program("--device", "0")
	p.Want("alloc a 3G", "ok")
	minute := time.Now().Truncate(time.Minute)
	rig.Eventually(t, "a minute begins in which the memory is used from the start", func() bool { return time.Now().After(minute.Add(time.Minute)) })
	minute = minute.Add(time.Minute)
	rig.Eventually(t, "that minute is nearly over", func() bool { return time.Now().After(minute.Add(55 * time.Second)) })
	rig.Eventually(t, "the history has that minute", func() bool {
		found := false
		ctx, cancel := context.WithTimeout(t.Context(), bounded.Patience)
		defer cancel()
		err := rows.Ask(ctx, rows.SocketOf(m.Socket), rows.Question{Want: rows.WantMinutes, SinceMs: minute.UnixMilli()}, func(l rows.Line) error {
			found = found || l.Minute != nil && l.Minute.Used == 3<<30
			return nil
		})
		return err == nil && found
	})
	m.Kill()
	m.Start()
	m.url()
	for _, span := range []string{"hour", "day"} {
		rig.Eventually(t, "the page knows of that minute in the "+span, func() bool { return knows(t, url, span, minute) })
	}
	p.End()
}

// knows reports whether a span of the page has a point with 3 GiB in a minute, or in the step that it is in.
func knows(t *testing.T, url, span string, minute time.Time) bool {
	t.Helper()
	var day struct {
		Times   []int64 `json:"times_ms"`
		Devices []struct {
			Peak []*uint64 `json:"peak_bytes"`
		} `json:"devices"`
	}
	if err := json.Unmarshal([]byte(get(t, url+"history?span="+span)), &day); err != nil || len(day.Devices) == 0 {
		return false
	}
	for i, at := range day.Times {
		if peak := day.Devices[0].Peak[i]; peak != nil && *peak == 3<<30 && at <= minute.Add(3*time.Minute).UnixMilli() {
			return true
		}
	}
	return false
}
