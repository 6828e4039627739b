package archive

// This file keeps the store within its bounds of size and age. run.go calls it every ten minutes, and when the file is full.

import (
	"database/sql"
	"os"
	"strconv"
)

const (
	pruneStep  = 2000 // jobs that are removed in one transaction
	pruneParts = 20   // divisor: a full file loses one twentieth of its jobs at once, but at least pruneStep
	dayMinutes = 24 * 60
	mostLog    = 32 << 20 // size of SQLite's log in bytes from which readers must not keep it any more
)

// pruneOld removes the jobs that ended before a time, and the minutes before that time.
func (s *store) pruneOld(beforeMs int64) error {
	for {
		n, err := s.removeJobs(pruneStep, "WHERE ended > 0 AND ended < ?", beforeMs)
		if err != nil {
			return err
		}
		if n < pruneStep {
			break
		}
	}
	if _, err := s.write.Exec("DELETE FROM minutes WHERE minute < ?", beforeMs/60000); err != nil {
		return err
	}
	_, err := s.write.Exec("PRAGMA incremental_vacuum")
	return err
}

// pruneLarge makes room until at most nine tenths of the largest size are in use, or nothing more can be removed. It first removes texts that
// no job has any more. It then removes the oldest ended jobs and the oldest day of minutes, again and again.
func (s *store) pruneLarge(maxBytes int64) error {
	for first := true; ; first = false {
		var pages, free, jobs int64
		if err := s.write.QueryRow("SELECT page_count, freelist_count, (SELECT count(*) FROM jobs) FROM pragma_page_count, pragma_freelist_count").Scan(&pages, &free, &jobs); err != nil {
			return err
		}
		if (pages-free)*pageSize <= maxBytes/10*9 {
			break
		}
		if !first {
			n, err := s.removeJobs(max(pruneStep, jobs/pruneParts), "WHERE ended > 0")
			if err != nil {
				return err
			}
			minutes, err := s.write.Exec("DELETE FROM minutes WHERE minute < (SELECT min(minute) FROM minutes) + ?", dayMinutes)
			if err != nil {
				return err
			}
			if gone, err := minutes.RowsAffected(); err != nil || n == 0 && gone == 0 {
				return err
			}
		}
		if err := s.removeTexts(); err != nil {
			return err
		}
	}
	_, err := s.write.Exec("PRAGMA incremental_vacuum")
	return err
}

// shortenLog ends all answers if SQLite's log has become too long, and empties it. The log keeps all that was written since the oldest
// answer began, so that a reader who reads slowly, or never, would let it grow without a bound.
func (s *store) shortenLog() error {
	if info, err := os.Stat(s.path + "-wal"); err != nil || info.Size() < mostLog {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for end := range s.answers {
		(*end)()
	}
	for len(s.answers) > 0 {
		s.changed.Wait()
	}
	s.closed = false
	s.changed.Broadcast()
	_, err := s.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}

// removeTexts removes the texts that no job has. Without it, a user whose jobs all have new names or commands would fill the file.
func (s *store) removeTexts() error {
	_, err := s.write.Exec(`DELETE FROM texts WHERE id NOT IN (SELECT daemon FROM jobs UNION SELECT user FROM jobs UNION SELECT grp FROM jobs UNION
		SELECT name FROM jobs UNION SELECT command FROM jobs UNION SELECT program FROM jobs UNION SELECT unit FROM jobs UNION SELECT path FROM jobs)`)
	clear(s.texts)
	return err
}

// removeJobs removes the oldest jobs for which a condition is true, with their uses, and returns how many it removed. most bounds that number.
func (s *store) removeJobs(most int64, where string, args ...any) (n int64, err error) {
	tx, err := s.write.Begin()
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	var gone sql.Result
	oldest := "(SELECT id FROM jobs " + where + " ORDER BY id LIMIT " + strconv.FormatInt(most, 10) + ")"
	if _, err = tx.Exec("DELETE FROM uses WHERE job IN "+oldest, args...); err != nil {
		return 0, err
	}
	if gone, err = tx.Exec("DELETE FROM jobs WHERE id IN "+oldest, args...); err != nil {
		return 0, err
	}
	if n, err = gone.RowsAffected(); err != nil {
		return 0, err
	}
	return n, tx.Commit()
}
