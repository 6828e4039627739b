package archive

// This file writes batches of the daemon to the store. run.go calls it for each batch.

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"

	"github.com/gpuarb/gpuarb/archive/rows"
)

const (
	hourMs = 3600 * 1000
	// mostSpread is the longest time over which one growth of totals is spread. It bounds the rows that are written if the clock is set
	// forward by years.
	mostSpread = 7 * 24 * hourMs
)

// writeBatch writes a batch of the daemon with an ID: all of it or nothing.
func (s *store) writeBatch(daemon string, b *rows.Batch) (err error) {
	tx, err := s.write.Begin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback()
			s.forget()
		}
	}()
	for i := range b.Jobs {
		if err := s.writeJob(tx, daemon, &b.Jobs[i], b.AtMs); err != nil {
			return fmt.Errorf("job %d: %w", b.Jobs[i].ID, err)
		}
	}
	for _, m := range b.Minutes {
		id, err := s.device(tx, device{m.UUID, m.Device})
		if err != nil {
			return err
		}
		if _, err := tx.Exec("INSERT OR REPLACE INTO minutes (minute, device, used, reserved, grantable, unmanaged, total) VALUES (?, ?, ?, ?, ?, ?, ?)",
			m.Minute, id, stored(m.Used), stored(m.Reserved), stored(m.Grantable), stored(m.Unmanaged), stored(m.Total)); err != nil {
			return err
		}
	}
	if b.Settled {
		if err := s.endOthers(tx, daemon); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// stored returns a number as SQLite stores it: signed, and at most 2⁶³−1.
func stored(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// endOthers marks as ended in an unknown way the jobs of earlier daemons that have no end. The jobs that this daemon has taken over are marked
// as continued already.
func (s *store) endOthers(tx *sql.Tx, daemon string) error {
	id, err := s.text(tx, daemon)
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE jobs SET ended = seen, how = ? WHERE ended = 0 AND daemon <> ?", rows.Unknown, id)
	return err
}

// writeJob writes the row of a job. atMs is the time of its totals.
func (s *store) writeJob(tx *sql.Tx, daemon string, j *rows.Job, atMs int64) error {
	if j.EndedMs != 0 {
		atMs = j.EndedMs
	}
	known, err := s.openJob(tx, daemon, j, atMs)
	if err != nil {
		return err
	}
	var peak uint64
	for _, u := range j.Devices {
		peak = max(peak, u.Peak)
		if err := s.writeUse(tx, known, j, u, atMs); err != nil {
			return err
		}
	}
	reasons, err := json.Marshal(j.Reasons)
	if err != nil {
		return err
	}
	if known.seenMs = atMs; j.EndedMs != 0 {
		delete(s.open, jobKey{daemon, j.ID})
	}
	_, err = tx.Exec("UPDATE jobs SET seen = max(?, began), ended = ?, how = ?, code = ?, reasons = ?, refusal = ?, lacked = ?, peak = max(peak, ?) WHERE id = ?",
		atMs, j.EndedMs, j.How, j.Code, string(reasons), j.Refusal, stored(j.LackedBy), stored(peak), known.row)
	return err
}

// openJob returns the state of the row of a job. If the store lacks it, openJob adds it, and marks the rows of the same job by earlier daemons
// as continued.
func (s *store) openJob(tx *sql.Tx, daemon string, j *rows.Job, atMs int64) (*openJob, error) {
	key := jobKey{daemon, j.ID}
	if known := s.open[key]; known != nil {
		return known, nil
	}
	var of [7]int64
	for i, text := range []string{daemon, j.User, j.Group, j.Name, j.Command, j.Program, j.Unit} {
		var err error
		if of[i], err = s.text(tx, text); err != nil {
			return nil, err
		}
	}
	known := &openJob{totals: map[int64]rows.Use{}}
	err := tx.QueryRow("SELECT id, seen FROM jobs WHERE daemon = ? AND job = ?", of[0], stored(j.ID)).Scan(&known.row, &known.seenMs)
	switch err {
	case nil:
		if err := known.readTotals(tx); err != nil {
			return nil, err
		}
	case sql.ErrNoRows:
		known.seenMs = j.BeganMs
		err = tx.QueryRow("SELECT ifnull(max(seen), ?2) FROM jobs WHERE key = ?1", j.Key, j.BeganMs).Scan(&known.seenMs)
		if err != nil {
			return nil, err
		}
		if _, err = tx.Exec("UPDATE jobs SET ended = seen, how = ? WHERE key = ?", rows.Continued, j.Key); err != nil {
			return nil, err
		}
		err = tx.QueryRow(`INSERT INTO jobs (daemon, job, key, uid, user, grp, name, command, program, unit, began, seen, ended, how, code, reasons, refusal, lacked, peak)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '', 0, '', '', 0, 0) RETURNING id`,
			of[0], stored(j.ID), j.Key, j.UID, of[1], of[2], of[3], of[4], of[5], of[6], j.BeganMs, atMs).Scan(&known.row)
		if err != nil {
			return nil, err
		}
	default:
		return nil, err
	}
	s.open[key] = known
	return known, nil
}

// readTotals sets the totals of a job's row from the rows of uses, which an earlier process of the history has written.
func (known *openJob) readTotals(tx *sql.Tx) error {
	all, err := tx.Query(`SELECT device, sum(held), sum(granted), sum(reserved), sum(committed), sum(suspended), max(peak), sum(idle), sum(waits), sum(waited), sum(refused)
		FROM uses WHERE job = ? GROUP BY device`, known.row)
	if err != nil {
		return err
	}
	defer all.Close()
	for all.Next() {
		var id int64
		var u rows.Use
		if err := all.Scan(&id, &u.Held, &u.Granted, &u.Reserved, &u.Committed, &u.Suspended, &u.Peak, &u.IdleMs, &u.Waits, &u.WaitedMs, &u.Refused); err != nil {
			return err
		}
		known.totals[id] = u
	}
	return all.Err()
}

// writeUse adds the growth of a job's totals on a device since the last row of the job. Held and the other byte-seconds are spread
// evenly over the hours between, but at most over the last week. The counts and times all go to the last hour.
func (s *store) writeUse(tx *sql.Tx, known *openJob, j *rows.Job, u rows.Use, atMs int64) error {
	id, err := s.device(tx, device{u.UUID, u.Device})
	if err != nil {
		return err
	}
	was := known.totals[id]
	known.totals[id] = u
	peak := u.Now // if the total peak has not grown, the hour gets the bytes held now
	if u.Peak > was.Peak {
		peak = u.Peak
	}
	from := max(min(known.seenMs, atMs), atMs-mostSpread)
	for since := from; ; {
		until := min(atMs, (since/hourMs+1)*hourMs)
		part, last := 1.0, until == atMs
		if atMs > from {
			part = float64(until-since) / float64(atMs-from)
		}
		counts := rows.Use{}
		if last {
			counts = rows.Use{IdleMs: grown(was.IdleMs, u.IdleMs), Waits: grown(was.Waits, u.Waits), WaitedMs: grown(was.WaitedMs, u.WaitedMs), Refused: grown(was.Refused, u.Refused)}
		}
		_, err = tx.Exec(`INSERT INTO uses (job, device, hour, since, until, held, granted, reserved, committed, suspended, peak, idle, waits, waited, refused)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (job, device, hour) DO UPDATE SET until = max(until, excluded.until), held = held + excluded.held, granted = granted + excluded.granted,
				reserved = reserved + excluded.reserved, committed = committed + excluded.committed, suspended = suspended + excluded.suspended,
				peak = max(peak, excluded.peak), idle = idle + excluded.idle, waits = waits + excluded.waits, waited = waited + excluded.waited, refused = refused + excluded.refused`,
			known.row, id, since/hourMs, since, until, part*grown(was.Held, u.Held), part*grown(was.Granted, u.Granted), part*grown(was.Reserved, u.Reserved),
			part*grown(was.Committed, u.Committed), part*grown(was.Suspended, u.Suspended), stored(peak), counts.IdleMs, stored(counts.Waits), counts.WaitedMs, stored(counts.Refused))
		if err != nil || last {
			return err
		}
		since = until
	}
}

// grown returns by how much a total has grown; 0 if it has shrunk.
func grown[T float64 | int64 | uint64](was, is T) T { return max(is, was) - was }
