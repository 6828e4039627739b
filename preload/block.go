package preload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// block is what is written into one file, between two lines of comment that say whose it is. It
// goes before all that is there, so that taking it out leaves the file as it was, whether or not that
// ended in a newline, and with what others changed in it meanwhile.
type block struct {
	path   string // of the file
	target Target
	lines  string // each with its newline
	needs  string // a path without which it is not written; "": it always is
}

func (m Machine) block(t Target, path, lines string) block {
	return block{path: m.path(path), target: t, lines: lines}
}

// Words of the first line that say what of the file's surroundings is new as well.
const (
	newFile   = "; file made"
	newFolder = "; folder made"
)

func (b block) begin() string {
	return fmt.Sprintf("# gpuarb begin: %v (taken out by: gpuarb disable --%v", b.target, b.target)
}

func (b block) end() string { return fmt.Sprintf("# gpuarb end: %v\n", b.target) }

// span returns where the block lies in a text; from < 0: it is not there.
func (b block) span(text []byte) (from, to int, err error) {
	begin := []byte(b.begin())
	from = bytes.Index(text, begin)
	if from < 0 {
		return -1, -1, nil
	}
	length := bytes.Index(text[from:], []byte(b.end()))
	if length < 0 {
		return -1, -1, fmt.Errorf("%s: the line %q is gone: take the lines from %q on out by hand", b.path, strings.TrimSpace(b.end()), begin)
	}
	return from, from + length + len(b.end()), nil
}

// insert writes the block, in the place of one that is there already. Whoever reads the file sees
// the old text or the new one. Nothing is written where it says the same already.
func (b block) insert() error {
	if b.needs != "" {
		if _, err := os.Stat(b.needs); err != nil {
			return nil
		}
	}
	old, err := os.ReadFile(b.path)
	made := ""
	if errors.Is(err, fs.ErrNotExist) {
		if made, err = b.makeFolders(); err == nil {
			made += newFile
		}
	}
	if err != nil {
		return err
	}
	from, to, err := b.span(old)
	if err != nil {
		return err
	}
	if from >= 0 { // what is new besides was written down then
		first, _, _ := strings.Cut(string(old[from:]), "\n")
		made = strings.TrimSuffix(strings.TrimPrefix(first, b.begin()), ")")
	} else {
		from, to = 0, 0
	}
	text := fmt.Sprintf("%s%s)\n%s%s", b.begin(), made, b.lines, b.end())
	text = string(old[:from]) + text + string(old[to:])
	if text == string(old) {
		return nil
	}
	return replace(b.path, []byte(text))
}

// makeFolders makes the folders that are missing above the file, and returns a word for each.
func (b block) makeFolders() (made string, err error) {
	var missing []string
	for dir := filepath.Dir(b.path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o755); err != nil {
			return made, err
		}
		made += newFolder
	}
	return made, nil
}

// remove takes the block out, and with it a file and folders that were made for it and that nobody
// else put anything into. false: it was not there.
func (b block) remove() (bool, error) {
	old, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	from, to, err := b.span(old)
	if err != nil || from < 0 {
		return false, err
	}
	first, _, _ := strings.Cut(string(old[from:to]), "\n")
	rest := append(bytes.Clone(old[:from]), old[to:]...)
	if len(rest) > 0 || !strings.Contains(first, newFile) {
		return true, replace(b.path, rest)
	}
	if err := os.Remove(b.path); err != nil {
		return false, err
	}
	dir := filepath.Dir(b.path)
	for range strings.Count(first, newFolder) {
		if os.Remove(dir) != nil { // others have put something there
			break
		}
		dir = filepath.Dir(dir)
	}
	return true, nil
}

// replace gives a file another text at once: a reader, and a machine that loses power, has the one
// or the other. Owner and mode stay.
func replace(path string, text []byte) error {
	mode, uid, gid := fs.FileMode(0o644), os.Geteuid(), os.Getegid()
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file: it is left alone", path)
	case err == nil:
		owner := info.Sys().(*syscall.Stat_t)
		mode, uid, gid = info.Mode().Perm(), int(owner.Uid), int(owner.Gid)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".gpuarb-")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Chown(uid, gid), file.Chmod(mode), file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// lock has one of us at a time change the files below a folder.
func lock(path string) (unlock func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("%s cannot be locked: %w", path, err)
	}
	return func() { _ = dir.Close() }, nil
}
