package figures

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file checks the record of how much of a device was taken: the largest percentage of each span, unknown spans
// without a reading, and a clock that is set back.

func TestRecent(t *testing.T) {
	const __ = RecentUnknown
	var r Recent
	at := time.Unix(1_000_000, 0) // begins a span
	for _, c := range []struct {
		after time.Duration
		taken uint64 // of 1000
		want  []int8 // the last spans
	}{
		{0, 500, []int8{__, __, __, 50}},
		{2 * time.Second, 300, []int8{__, __, __, 50}},
		{4 * time.Second, 1, []int8{__, __, 50, 1}},
		{10 * time.Second, 0, []int8{50, 1, __, 0}},
		{5 * time.Second, 2000, []int8{1, __, 0, 100}},
		{-time.Hour, 400, []int8{__, __, __, 40}},
		{24 * time.Hour, 300, []int8{__, __, __, 30}},
	} {
		at = at.Add(c.after)
		r.Note(at, accounting.Bytes(c.taken), 1000)
		got := r.Percent(at)
		if len(got) != RecentSpans {
			t.Fatalf("%d spans", len(got))
		}
		if diff := cmp.Diff(c.want, got[RecentSpans-4:]); diff != "" {
			t.Errorf("%v later: -want +got\n%s", c.after, diff)
		}
	}
	if got := r.Percent(at.Add(RecentStep)); got[RecentSpans-1] != __ || got[RecentSpans-2] != 30 {
		t.Errorf("a span later the record is %v", got)
	}
}
