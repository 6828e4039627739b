package archive

// This file keeps the store within its bounds of size and age. run.go calls it from time to time, and when the file is full.

import (
	"database/sql"
	"strconv"
)

const (
	pruneStep  = 2000 // jobs that are removed at once
	dayMinutes = 24 * 60
)

// pruneOld removes what is older than a time.
func (s *store) pruneOld(beforeMs int64) error {
	for {
		n, err := s.removeJobs("WHERE ended > 0 AND ended < ?", beforeMs)
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

// pruneLarge removes the oldest jobs that have ended, and the oldest minutes, until the file has nine tenths of its largest size.
func (s *store) pruneLarge(maxBytes int64) error {
	for range 10000 {
		var pages, free int64
		if err := s.write.QueryRow("PRAGMA page_count").Scan(&pages); err != nil {
			return err
		}
		if err := s.write.QueryRow("PRAGMA freelist_count").Scan(&free); err != nil {
			return err
		}
		if (pages-free)*pageSize <= maxBytes/10*9 {
			break
		}
		n, err := s.removeJobs("WHERE ended > 0")
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
	_, err := s.write.Exec("PRAGMA incremental_vacuum")
	return err
}

// removeJobs removes the oldest pruneStep jobs that a condition names, and returns their number.
func (s *store) removeJobs(where string, args ...any) (n int64, err error) {
	tx, err := s.write.Begin()
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }()
	var gone sql.Result
	oldest := "(SELECT id FROM jobs " + where + " ORDER BY id LIMIT " + strconv.Itoa(pruneStep) + ")"
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
