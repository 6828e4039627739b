package report

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
)

// This file checks what users read of jobs that have ended. tests/history checks the figures.

// TestMemoryTime checks the units of memory times time, in tables and in sentences.
func TestMemoryTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gibHours      float64
		cell, numbers string
		sentence      string
	}{
		{0, "0GiB-s", "0", "0 GiB-seconds"},
		{0.00269, "9.68GiB-s", "0.00269", "9.68 GiB-seconds"},
		{2.5 / 60, "2.5GiB-min", "0.0417", "2.5 GiB-minutes"},
		{12.5, "12.5GiB-h", "12.5", "12.5 GiB-hours"},
		{1234, "1234GiB-h", "1234", "1234 GiB-hours"},
	} {
		column := memoryTime("HELD", func(n float64) float64 { return n }, 0)
		if got := column.text(Style{Human: true}, c.gibHours); got != c.cell {
			t.Errorf("%v GiB-hours in a table: %s, want %s", c.gibHours, got, c.cell)
		}
		if got := column.text(Style{}, c.gibHours); got != c.numbers {
			t.Errorf("%v GiB-hours with --bytes: %s, want %s", c.gibHours, got, c.numbers)
		}
		if got := heldText(c.gibHours); got != c.sentence {
			t.Errorf("%v GiB-hours in a sentence: %s, want %s", c.gibHours, got, c.sentence)
		}
	}
}

// TestGoesOn checks the sentence about a job of which the history has no end, as after a restart of the daemon.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	const want = "job 7 (train) of ann has not ended as far as the history knows, which had its last figures 5s ago, after 10s.\n"
	p := rows.Past{ID: 7, User: "ann", Command: "train", BeganMs: 1000, SeenMs: 11_000}
	if err := WritePast(&out, p, time.UnixMilli(16_000)); err != nil || out.String() != want {
		t.Errorf("%q, %v, want %q", out.String(), err, want)
	}
}

// TestRefusals checks how the number of refused requests is written.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{1: "  one of its requests was refused: why\n", 3: "  3 of its requests were refused; the last refusal: why\n"} {
		var out strings.Builder
		if err := WritePast(&out, rows.Past{ID: 1, EndedMs: 1, Refused: n, Refusal: "why"}, time.UnixMilli(1000)); err != nil || !strings.HasSuffix(out.String(), want) {
			t.Errorf("%d refused: %q, %v, want %q", n, out.String(), err, want)
		}
	}
}
