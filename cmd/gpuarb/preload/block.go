package preload

// This file writes and removes a marked block of lines in a file. enable.go and everywhere.go use
// it.

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

// block is a block of lines in a file, between two comment lines that name its target. A block is
// inserted before the other lines. So its removal leaves the other lines as they are, with later
// changes of other programs, and also if the file does not end in a newline.
type block struct {
	path     string // path of the file
	target   Target
	lines    string // lines of the block, each with its newline
	requires string // path without which the block is not written; "": always write it
}

func (m Machine) block(t Target, path, lines string) block {
	return block{path: m.path(path), target: t, lines: lines}
}

// These words in the first line say that the file, or a folder above it, was created for the block.
const (
	newFile   = "; file made"
	newFolder = "; folder made"
)

func (b block) begin() string {
	return fmt.Sprintf("# gpuarb begin: %v (taken out by: gpuarb disable --%v", b.target, b.target)
}

func (b block) end() string { return fmt.Sprintf("# gpuarb end: %v\n", b.target) }

// span returns the position of the block in a text. from is below 0 if the block is not there.
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

// insert writes the block. If it is there already, it is replaced. A reader of the file sees the
// old text or the new text, never a part. If the text does not change, nothing is written.
func (b block) insert() error {
	if b.requires != "" {
		if _, err := os.Stat(b.requires); err != nil {
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
	if from >= 0 { // what was created then is recorded in the first line
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

// makeFolders creates the missing folders above the file. made has newFolder once for each folder
// that was created; it goes into the first line of the block.
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

// remove removes the block. It also removes a file and folders that were created for the block, if
// they are empty otherwise. It returns false if the block was not there.
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
		if os.Remove(dir) != nil { // the folder has other files
			break
		}
		dir = filepath.Dir(dir)
	}
	return true, nil
}

// replace gives a file a new text at once. A reader, and a machine that loses power, has the old
// text or the new text. Owner and mode stay.
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

// lock makes sure that only one gpuarb at a time changes the files below a folder.
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
