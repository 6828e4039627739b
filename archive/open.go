package archive

// This file opens the store: it takes the lock of its folder, migrates a file of an older version, and moves a file
// aside if it cannot be used. run.go calls it.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/gpuarb/gpuarb/archive/rows"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// pageSize is the size of a page of the file in bytes.
const pageSize = 4096

// readers bounds the answers that are computed at the same time.
const readers = 4

// errInUse is the error for a folder whose lock another process holds.
var errInUse = errors.New("another gpuarb daemon keeps its history there: give each daemon a folder of its own (STATE_DIRECTORY, XDG_STATE_HOME)")

// openStore opens the store in a folder. note says what became of a file that could not be used; "": the file could be
// used.
func openStore(folder string, maxBytes int64) (s *store, note string, err error) {
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, "", err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s: %w", folder, errInUse)
		}
		return nil, "", err
	}
	path := filepath.Join(folder, rows.FileName)
	s, err = openFile(path, maxBytes)
	if why := unusable(err); why != "" {
		if err = setAside(path); err == nil {
			note = fmt.Sprintf("%s was %s: it is kept as %s, and a new history begins", path, why, asideOf(path))
			s, err = openFile(path, maxBytes)
		}
	}
	if err != nil {
		lock.Close()
		return nil, note, err
	}
	s.lock = lock
	return s, note, nil
}

// errNewer is the error for a file of a newer version of gpuarb.
var errNewer = errors.New("written by a newer version of gpuarb")

// errForeign is the error for a database with other tables than those of its version.
var errForeign = errors.New("no history of gpuarb")

// unusable returns why a file can never be used, from the error of opening it or of a statement; "": the error does not mean that.
func unusable(err error) string {
	var failed *sqlite.Error
	switch {
	case errors.Is(err, errNewer):
		return errNewer.Error()
	case errors.Is(err, errForeign):
		return errForeign.Error()
	case errors.As(err, &failed) && (failed.Code()&0xff == sqlite3.SQLITE_NOTADB || failed.Code()&0xff == sqlite3.SQLITE_CORRUPT):
		return "damaged"
	}
	return ""
}

func asideOf(path string) string { return path + ".aside" }

// setAside renames a file that cannot be used, with the two files that SQLite keeps beside it. It replaces the file that was set aside before,
// so that such files do not add up.
func setAside(path string) error {
	for _, of := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(asideOf(path) + of)
		if err := os.Rename(path+of, asideOf(path)+of); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openFile opens the file at a path, or makes it, and brings it to this version.
func openFile(path string, maxBytes int64) (*store, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600) // SQLite gives its other files the mode of this one
	if err != nil {
		return nil, err
	}
	file.Close()
	s := &store{path: path, texts: map[string]int64{}, devices: map[device]int64{}, open: map[jobKey]*openJob{}, answers: map[*context.CancelFunc]bool{}}
	s.changed = sync.NewCond(&s.mu)
	settings := url.Values{"_pragma": {"busy_timeout=5000", "temp_store=memory"}}
	settings.Set("_txlock", "immediate")
	for _, pragma := range []string{"page_size=" + strconv.Itoa(pageSize), "auto_vacuum=incremental", "journal_mode=wal", "synchronous=normal",
		"journal_size_limit=8388608", "cache_size=-16384", "max_page_count=" + strconv.FormatInt(max(maxBytes/pageSize, 64), 10)} {
		settings.Add("_pragma", pragma)
	}
	if s.write, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+settings.Encode()); err != nil {
		return nil, err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.migrate(); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	reading := url.Values{"_pragma": {"busy_timeout=5000", "temp_store=memory", "query_only=1", "cache_size=-32768", "mmap_size=1073741824"}}
	if s.read, err = sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+reading.Encode()); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	s.read.SetMaxOpenConns(readers)
	return s, nil
}

// migrate applies the steps of schema.go that the file has not had. It applies all of them or none.
func (s *store) migrate() (err error) {
	tx, err := s.write.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var version int
	if err := tx.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > len(steps) {
		return errNewer
	}
	for _, step := range append(slices.Clone(steps[max(version, 0):]), tablesOfAll) {
		_, err := tx.Exec(step)
		var failed *sqlite.Error
		if errors.As(err, &failed) && failed.Code() == sqlite3.SQLITE_ERROR { // a table is there already, or lacks
			return fmt.Errorf("%w: %w", errForeign, err)
		}
		if err != nil {
			return err
		}
	}
	if _, err := tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", len(steps))); err != nil {
		return err
	}
	return tx.Commit()
}

// close closes the file and releases the lock.
func (s *store) close() error {
	err := errors.Join(s.read.Close(), s.write.Close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}
