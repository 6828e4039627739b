package archive

// This file checks the store from its rows to its answers: sums, windows, restarts, versions, damage and bounds. tests/history checks the
// process and the commands.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/archive/rows"
)

const gib = 1 << 30

// opened returns a store in a folder.
func opened(t testing.TB, folder string) *store {
	t.Helper()
	s, note, err := openStore(folder, 1<<30)
	if err != nil || note != "" {
		t.Fatal(note, err)
	}
	return s
}

// sums returns the report of a question, for root.
func sums(t testing.TB, s *store, q rows.Question) (all []rows.Sum) {
	t.Helper()
	q.Want = rows.WantReport
	err := s.answer(context.Background(), reader{all: true}, q, 100*hourMs, func(l rows.Line) error {
		all = append(all, *l.Sum)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }

// job returns the row of a job that has held bytes for a time.
func job(id uint64, user string, beganMs, seconds int64, bytes uint64) rows.Job {
	return rows.Job{ID: id, Key: fmt.Sprint("k", id), UID: 1000, User: user, Group: "g", Command: "prog --flag", Program: "prog", BeganMs: beganMs,
		Devices: []rows.Use{{Device: 0, UUID: "GPU-0", Held: float64(bytes) * float64(seconds), Now: bytes, Peak: bytes}}}
}

// TestTotals checks that rows with growing totals, sent twice and by a process that was started again, are counted once.
func TestTotals(t *testing.T) {
	folder := t.TempDir()
	s := opened(t, folder)
	const began = 5*hourMs + hourMs/2
	for seconds := int64(0); seconds <= 3600; seconds += 600 {
		b := rows.Batch{AtMs: began + seconds*1000, Jobs: []rows.Job{job(1, "ann", began, seconds, 2*gib)}}
		for range 2 {
			if err := s.writeBatch("d", &b); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		s = opened(t, folder)
	}
	all := sums(t, s, rows.Question{By: "user"})
	if len(all) != 1 || all[0].Key != "ann" || !near(all[0].Held, 2) || !near(all[0].Hours, 1) || !near(all[0].AtPeak, 2) || all[0].Peak != 2*gib || all[0].Jobs != 1 {
		t.Errorf("2 GiB for an hour: %+v", all)
	}
	for _, w := range []struct{ since, until, want float64 }{{5.5, 6, 1}, {6, 6.5, 1}, {5.75, 6.25, 1}, {5, 5.75, 0.5}, {6.5, 9, 0}, {6.25, 0, 0.5}} {
		got := 0.0
		for _, r := range sums(t, s, rows.Question{By: "user", SinceMs: int64(w.since * hourMs), UntilMs: int64(w.until * hourMs)}) {
			got += r.Held
		}
		if !near(got, w.want) {
			t.Errorf("from %v to %v: %v GiB-hours, want %v", w.since, w.until, got, w.want)
		}
	}
}

// TestRestartedDaemon checks that the rows of one job by two daemons are one job, and that a job which did not come back has ended.
func TestRestartedDaemon(t *testing.T) {
	s := opened(t, t.TempDir())
	write := func(daemon string, at int64, settled bool, jobs ...rows.Job) {
		t.Helper()
		if err := s.writeBatch(daemon, &rows.Batch{AtMs: at, Jobs: jobs, Settled: settled}); err != nil {
			t.Fatal(err)
		}
	}
	write("one", 10_000, false, job(1, "ann", 0, 10, gib), job(2, "bob", 0, 10, gib))
	again := job(1, "ann", 0, 5, gib)
	write("two", 16_000, true, again)
	again = job(1, "ann", 0, 9, gib)
	again.EndedMs, again.How, again.Code = 20_000, rows.Exited, 3
	write("two", 20_000, false, again)
	var pasts []rows.Past
	err := s.answer(context.Background(), reader{all: true}, rows.Question{Want: rows.WantJobs}, 30_000, func(l rows.Line) error {
		pasts = append(pasts, *l.Past)
		return nil
	})
	if err != nil || len(pasts) != 2 {
		t.Fatal(err, pasts)
	}
	if p := pasts[0]; p.ID != 1 || p.How != rows.Exited || p.Code != 3 || p.BeganMs != 0 || p.EndedMs != 20_000 || !near(p.Held*3600, 19) {
		t.Errorf("the job that came back: %+v", p)
	}
	if p := pasts[1]; p.ID != 2 || p.How != rows.Unknown || p.EndedMs != 10_000 || !near(p.Held*3600, 10) {
		t.Errorf("the job that did not come back: %+v", p)
	}
}

// TestOwnRows checks that a user sees the user's own rows only.
func TestOwnRows(t *testing.T) {
	s := opened(t, t.TempDir())
	other := job(2, "bob", 0, 10, gib)
	other.UID = 1001
	if err := s.writeBatch("d", &rows.Batch{AtMs: 10_000, Jobs: []rows.Job{job(1, "ann", 0, 10, gib), other}}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []rows.Question{{Want: rows.WantReport, By: "user"}, {Want: rows.WantJobs, Running: true}} {
		n := 0
		err := s.answer(context.Background(), reader{uid: 1001}, q, 30_000, func(l rows.Line) error {
			n++
			text, err := json.Marshal(l)
			if err == nil && (l.Sum != nil && l.Sum.Key != "bob" || l.Past != nil && l.Past.User != "bob") {
				t.Errorf("bob is shown %s", text)
			}
			return err
		})
		if err != nil || n != 1 {
			t.Errorf("%s: %d rows, %v", q.Want, n, err)
		}
	}
}

// TestUnusableFile checks that a newer and a damaged file are set aside, and that a second process does not get the store.
func TestUnusableFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, rows.FileName)
	s := opened(t, folder)
	if _, _, err := openStore(folder, 1<<30); err == nil {
		t.Error("two processes have the store")
	}
	if _, err := s.write.Exec("PRAGMA user_version = 999"); err != nil {
		t.Fatal(err)
	}
	_ = s.close()
	for _, why := range []string{"newer", "damaged"} {
		s, note, err := openStore(folder, 1<<30)
		if err != nil || note == "" {
			t.Fatalf("a %s file: %q, %v", why, note, err)
		}
		if len(sums(t, s, rows.Question{By: "user"})) != 0 {
			t.Error("the new file has rows")
		}
		_ = s.close()
		if err := os.WriteFile(path, []byte("this is no database, and has been none for long enough to be a page"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestForeignFile checks that a database of another program is set aside, whatever version and tables it has.
func TestForeignFile(t *testing.T) {
	for _, statement := range []string{"CREATE TABLE jobs (a)", "PRAGMA user_version = 2", "PRAGMA user_version = -7"} {
		folder := t.TempDir()
		db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, rows.FileName))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("CREATE TABLE texts (mine); " + statement); err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		s, note, err := openStore(folder, 1<<30)
		if err != nil || note == "" {
			t.Errorf("%s: %q, %v", statement, note, err)
			continue
		}
		if err := s.writeBatch("d", &rows.Batch{AtMs: 10_000, Jobs: []rows.Job{job(1, "ann", 0, 10, gib)}}); err != nil {
			t.Error(err)
		}
		_ = s.close()
	}
}

// TestOldVersion checks that a file of each older version is brought to this one, with its rows.
func TestOldVersion(t *testing.T) {
	for version := 1; version < len(steps); version++ {
		folder := t.TempDir()
		path := filepath.Join(folder, rows.FileName)
		db, err := sql.Open("sqlite", "file:"+path)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range append(slices.Clone(steps[:version]), fmt.Sprintf("PRAGMA user_version = %d", version), "INSERT INTO texts VALUES (1, 'old')") {
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		_ = db.Close()
		s := opened(t, folder)
		var is int
		var text string
		err = errors.Join(s.read.QueryRow("PRAGMA user_version").Scan(&is), s.read.QueryRow("SELECT text FROM texts").Scan(&text))
		if err != nil || is != len(steps) || text != "old" {
			t.Errorf("a file of version %d has version %d and the text %q, %v", version, is, text, err)
		}
		if err := s.writeBatch("d", &rows.Batch{AtMs: 10_000, Jobs: []rows.Job{job(1, "ann", 0, 10, gib)}}); err != nil {
			t.Error(err)
		}
		_ = s.close()
	}
}

// TestBounds checks that the oldest jobs go when the store has reached its largest size.
func TestBounds(t *testing.T) {
	const most = 1 << 18
	s, _, err := openStore(t.TempDir(), most)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{store: s, settings: rows.Settings{MaxBytes: most, Daemon: "d"}}
	for i := range uint64(20) {
		var b rows.Batch
		for n := range uint64(125) {
			j := job(1+i*125+n, "ann", int64(i)*1000, 1, gib)
			j.EndedMs, j.How = int64(i)*1000+1000, rows.Exited
			b.Jobs = append(b.Jobs, j)
		}
		if err := k.write(&b); err != nil {
			t.Fatal(i, err)
		}
	}
	info, err := os.Stat(s.path)
	if err != nil || info.Size() > most {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	var least, largest uint64
	if err := s.read.QueryRow("SELECT min(job), max(job) FROM jobs").Scan(&least, &largest); err != nil || least == 1 || largest != 2500 {
		t.Errorf("jobs %d to %d, %v", least, largest, err)
	}
}

// TestNewTexts checks that commands which never come again do not fill the store: it keeps the latest jobs.
func TestNewTexts(t *testing.T) {
	const most = 1 << 20
	s, _, err := openStore(t.TempDir(), most)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{store: s, settings: rows.Settings{MaxBytes: most, Daemon: "d"}}
	for i := range uint64(40) {
		var b rows.Batch
		for n := range uint64(25) {
			j := job(1+i*25+n, "ann", int64(i)*1000, 1, gib)
			j.Command = fmt.Sprintf("prog %d %04000d", j.ID, 0)
			j.EndedMs, j.How = int64(i)*1000+1000, rows.Exited
			b.Jobs = append(b.Jobs, j)
		}
		if err := k.write(&b); err != nil {
			t.Fatal(i, err)
		}
	}
	var commands int
	if err := s.read.QueryRow("SELECT count(*) FROM jobs JOIN texts ON texts.id = command WHERE job = 1000 AND text LIKE 'prog 1000 %'").Scan(&commands); err != nil || commands != 1 {
		t.Errorf("%d rows of the last job have its command, %v", commands, err)
	}
}

// TestClockForward checks that a clock which is set forward by half a century costs a bounded number of rows, and no sum.
func TestClockForward(t *testing.T) {
	s := opened(t, t.TempDir())
	const late = 56 * 365 * 24 * hourMs
	for _, b := range []rows.Batch{{AtMs: 1000, Jobs: []rows.Job{job(1, "ann", 0, 1, gib)}}, {AtMs: late, Jobs: []rows.Job{job(1, "ann", 0, 3600, gib)}}} {
		if err := s.writeBatch("d", &b); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := s.read.QueryRow("SELECT count(*) FROM uses").Scan(&n); err != nil || n > 200 {
		t.Errorf("%d rows, %v", n, err)
	}
	if all := sums(t, s, rows.Question{By: "user", UntilMs: late}); len(all) != 1 || !near(all[0].Held, 1) {
		t.Errorf("1 GiB for an hour: %+v", all)
	}
}

// TestClockBack checks that a clock which is set back by an hour under a running job costs no sum, and that no time becomes negative.
func TestClockBack(t *testing.T) {
	folder := t.TempDir()
	s := opened(t, folder)
	const began = 12 * hourMs
	held := int64(0) // seconds
	running := func(from, seconds int64) {
		t.Helper()
		for at := from; at <= from+seconds*1000; at += 60_000 {
			b := rows.Batch{AtMs: at, Jobs: []rows.Job{job(1, "ann", began, held+(at-from)/1000, gib)}}
			if err := s.writeBatch("d", &b); err != nil {
				t.Fatal(err)
			}
		}
		held += seconds
	}
	look := func(want float64, how string) {
		t.Helper()
		all := sums(t, s, rows.Question{By: "user"})
		if len(all) != 1 || !near(all[0].Held*3600, want) || all[0].Hours < 0 || all[0].AtPeak < 0 || all[0].Jobs != 1 {
			t.Errorf("%s: %+v, want %v GiB-seconds", how, all, want)
		}
		err := s.answer(context.Background(), reader{all: true}, rows.Question{Want: rows.WantJobs, Running: true}, began, func(l rows.Line) error {
			if p := l.Past; p.SeenMs < p.BeganMs || p.EndedMs != 0 && p.EndedMs < p.BeganMs || !near(p.Held*3600, want) {
				t.Errorf("%s: %+v", how, p)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	running(began, 1800)
	running(began-hourMs/2, 1200)
	look(3000, "half an hour, and twenty minutes after the clock was set back")
	_ = s.close()
	s = opened(t, folder) // the totals are read from the file
	look(3000, "in the next process")
	running(began-hourMs/6, 600)
	look(3600, "when the clock shows the time again")
	again := job(1, "ann", began, 60, gib)
	again.EndedMs, again.How = began, rows.Exited // the daemon's bound: not before its beginning
	if err := s.writeBatch("next", &rows.Batch{AtMs: began - hourMs, Jobs: []rows.Job{again}}); err != nil {
		t.Fatal(err)
	}
	look(3660, "by the next daemon, after the clock was set back again")
}
