package archive

// This file checks reports: their sums for each grouping, and their speed.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"golang.org/x/sys/unix"
)

// holding is the memory of a job on one device, which it held from its beginning to its end.
type holding struct {
	keys         map[string]string // by grouping
	began, ended int64
	bytes        uint64
}

// writeHoldings writes jobs that hold random bytes for random times, and returns them. Every third job is counted by two daemons.
func writeHoldings(t *testing.T, s *store, jobs uint64) (all []holding) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range jobs {
		j := job(1+i, fmt.Sprint("u", i%3), random.Int64N(30*hourMs), 0, 0)
		j.Group, j.Name, j.Unit, j.Program = fmt.Sprint("g", i%2), []string{"", "a b", "n "}[i%3], fmt.Sprint("x", i%4), fmt.Sprint("p", i%7)
		end := j.BeganMs + 1000 + random.Int64N(5*hourMs)
		half := (j.BeganMs + end) / 2
		label := fmt.Sprint("job ", j.ID)
		if j.Name != "" {
			label += " " + j.Name
		}
		j.Devices = make([]rows.Use, 1+i%2)
		for d := range j.Devices {
			h := holding{began: j.BeganMs, ended: end, bytes: gib + random.Uint64N(gib), keys: map[string]string{"user": j.User, "group": j.Group, "job": label,
				"name": j.Name, "unit": j.Unit, "command": j.Program, "device": fmt.Sprintf("%d GPU-%d", d, d)}}
			all = append(all, h)
			j.Devices[d] = rows.Use{Device: d, UUID: fmt.Sprint("GPU-", d), Peak: h.bytes, Now: h.bytes}
		}
		counted := func(daemon string, since, until int64) {
			for d := range j.Devices {
				j.Devices[d].Held = float64(j.Devices[d].Peak) * float64(until-since) / 1000
			}
			if err := s.writeBatch(daemon, &rows.Batch{AtMs: until, Jobs: []rows.Job{j}}); err != nil {
				t.Fatal(err)
			}
		}
		counted("one", j.BeganMs, half)
		j.EndedMs, j.How = end, rows.Exited
		if i%3 == 0 {
			counted("two", half, end)
		} else {
			counted("one", j.BeganMs, end)
		}
	}
	return all
}

// TestGroupings compares the report of each grouping, of all the time and of a part of it, with sums that the test adds up itself.
func TestGroupings(t *testing.T) {
	s := opened(t, t.TempDir())
	all := writeHoldings(t, s, 200)
	for _, by := range rows.Groupings {
		for _, w := range []struct{ since, until int64 }{{0, 50 * hourMs}, {10*hourMs + 1234567, 20*hourMs + 7654321}} {
			want, jobs := map[string]float64{}, map[string]map[string]bool{}
			for _, h := range all {
				if ms := min(h.ended, w.until) - max(h.began, w.since); ms > 0 {
					key := h.keys[by]
					want[key] += float64(h.bytes) / gib * float64(ms) / hourMs
					if jobs[key] == nil {
						jobs[key] = map[string]bool{}
					}
					jobs[key][h.keys["job"]] = true
				}
			}
			got := sums(t, s, rows.Question{By: by, SinceMs: w.since, UntilMs: w.until})
			if len(got) != len(want) {
				t.Errorf("by %s from %d: %d keys, want %d", by, w.since, len(got), len(want))
			}
			for i, r := range got {
				if !near(r.Held, want[r.Key]) || !near(r.AtPeak, r.Held) || r.Jobs != int64(len(jobs[r.Key])) || i > 0 && r.Held > got[i-1].Held {
					t.Errorf("by %s from %d: %+v, want %v GiB-hours of %d jobs", by, w.since, r, want[r.Key], len(jobs[r.Key]))
				}
			}
		}
	}
	if len(tallyNumbers()) != 0 {
		t.Errorf("tallies of reports that have ended are kept: %v", tallyNumbers())
	}
}

// tallyNumbers returns the numbers of the tallies that exist.
func tallyNumbers() (all []any) {
	tallies.Range(func(number, _ any) bool {
		all = append(all, number)
		return true
	})
	return all
}

// TestNoDevice checks that what belongs to no device has no key in the report by device.
func TestNoDevice(t *testing.T) {
	s := opened(t, t.TempDir())
	j := job(1, "ann", 0, 10, gib)
	j.Devices = append(j.Devices, rows.Use{Device: rows.NoDevice, Waits: 1, WaitedMs: hourMs})
	if err := s.writeBatch("d", &rows.Batch{AtMs: 10_000, Jobs: []rows.Job{j}}); err != nil {
		t.Fatal(err)
	}
	if all := sums(t, s, rows.Question{By: "device"}); len(all) != 2 || all[0].Key != "0 GPU-0" || all[1].Key != "" || !near(all[1].Waited, 1) {
		t.Errorf("%+v", all)
	}
}

// TestPlan checks that SQLite reads each row of a report once, in the order of jobs, and sorts nothing.
func TestPlan(t *testing.T) {
	s := opened(t, t.TempDir())
	for _, by := range rows.Groupings {
		all, err := s.read.Query("EXPLAIN QUERY PLAN "+reportQuery(by, "1.0"), 0, 1, -1, 0)
		if err != nil {
			t.Fatal(err)
		}
		var steps []string
		for all.Next() {
			var id, parent, unused int
			var step string
			if err := all.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			steps = append(steps, step)
		}
		if plan := strings.Join(steps, "; "); plan != "SCAN u; SEARCH j USING INTEGER PRIMARY KEY (rowid=?)" {
			t.Errorf("by %s: %s", by, plan)
		}
		_ = all.Close()
	}
}

// fillMillion adds a million rows of 500,000 jobs on two devices.
func fillMillion(t testing.TB, s *store) {
	t.Helper()
	fill := `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 500000)`
	for _, statement := range []string{
		"INSERT INTO devices VALUES (1, 'GPU-0', 0), (2, 'GPU-1', 1)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000) INSERT INTO texts SELECT i, 'text ' || i FROM n",
		fill + ` INSERT INTO jobs (id, daemon, job, key, uid, user, grp, name, command, program, unit, began, seen, ended, how, code, reasons, refusal, lacked, peak)
			SELECT i, 1, i, 'key' || i, 1000 + i % 40, 2 + i % 40, 50 + i % 5, 60 + i % 100, 200 + i % 1700, 200 + i % 1700, 1900 + i % 50, i * 1000, i * 1000 + 900, i * 1000 + 900, 'exit', 0, '', '', 0, 1073741824 FROM n`,
		fill + " INSERT INTO uses SELECT i, 1, i / 3600, i * 1000, i * 1000 + 900, 1e9, 1e9, 0, 1e9, 0, 1073741824, 0, 0, 0, 0 FROM n",
		fill + " INSERT INTO uses SELECT i, 2, i / 3600, i * 1000, i * 1000 + 900, 1e9, 1e9, 0, 1e9, 0, 1073741824, 0, 0, 0, 0 FROM n",
	} {
		if _, err := s.write.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
}

// processorTime returns the processor's time that this process has used, which other programs on the machine change little.
func processorTime(b *testing.B) time.Duration {
	var of unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &of); err != nil {
		b.Fatal(err)
	}
	return time.Duration(of.Utime.Nano() + of.Stime.Nano())
}

// BenchmarkReport makes a report over a million rows of 500,000 jobs: of all the time, and of its middle. The floor is one sum over the same rows
// and jobs.
func BenchmarkReport(b *testing.B) {
	s := opened(b, b.TempDir())
	fillMillion(b, s)
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			var sum float64
			if err := s.read.QueryRow("SELECT sum(u.held) FROM uses u CROSS JOIN jobs j ON j.id = u.job WHERE j.uid > 0").Scan(&sum); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, since := range []int64{0, 100_000_000} {
		for _, by := range rows.Groupings {
			b.Run(fmt.Sprintf("since=%d/by=%s", since, by), func(b *testing.B) {
				began := processorTime(b)
				for b.Loop() {
					q := rows.Question{Want: rows.WantReport, By: by, SinceMs: since, UntilMs: 600_000_000 - since}
					if err := s.answer(context.Background(), reader{all: true}, q, 600_000_000, func(rows.Line) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
