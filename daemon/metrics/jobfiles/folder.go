package jobfiles

// This file owns the folder: it writes the file of each GPU, replaces files by renaming, and
// empties those without jobs. daemon/metrics.go makes the Folder and calls it. doc.go says what
// dcgm-exporter expects of the files.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// vendor is the vendor of the GPUs that DCGM knows. DCGM, NVML and gpuarb number these GPUs
// equally.
const vendor = "nvidia"

// Folder is the folder of the files. All files in it whose names are numbers belong to it.
type Folder struct {
	path    string
	written map[string]string // text of each file, by name; nil: the folder has not been read
}

// New returns a Folder for a path, which need not exist.
func New(path string) *Folder { return &Folder{path: path} }

// Path returns the path of the folder.
func (f *Folder) Path() string { return f.path }

// Write writes into each file which jobs have something of the GPU. Files that are up to date stay
// as they are. Files of missing GPUs are emptied. If a file cannot be written, the others are
// written all the same, and the next call tries it again.
func (f *Folder) Write(s figures.Snapshot) error {
	files := map[string]string{}
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Vendor == vendor {
			files[strconv.Itoa(d.Index)] = lines(jobsOn(&s, d))
		}
	}
	return f.writeAll(files)
}

// Clear empties the files.
func (f *Folder) Clear() error { return f.writeAll(nil) }

// jobsOn returns the jobs that have a lease of a living process on a device, or the device by claim
// or exclusively.
func jobsOn(s *figures.Snapshot, d *figures.DeviceState) []uint64 {
	var jobs []uint64
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Device == d.Index && l.State != figures.StateDraining && l.State != figures.StateLost {
			jobs = append(jobs, l.Job)
		}
	}
	for _, h := range d.Holders {
		if h.Kind != figures.HoldsSlot {
			jobs = append(jobs, h.Job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

func lines(jobs []uint64) string {
	var b strings.Builder
	for _, job := range jobs {
		fmt.Fprintln(&b, job)
	}
	return b.String()
}

// writeAll writes texts into files, and empties all other files.
func (f *Folder) writeAll(files map[string]string) error {
	root, err := f.open()
	if err != nil {
		return err
	}
	defer root.Close()
	var failed error
	for name := range f.written {
		if files[name] == "" {
			failed = errors.Join(failed, f.replace(root, name, ""))
		}
	}
	for name, text := range files {
		failed = errors.Join(failed, f.replace(root, name, text))
	}
	return failed
}

// unknown stands for a text that was not read.
const unknown = "\x00"

// open opens the folder, and creates it if it does not exist. All files are accessed through the
// open folder, so that a user who can change a part of the path cannot redirect the writes.
func (f *Folder) open() (*os.Root, error) {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, err
	}
	if err = f.checkOwner(root); err == nil && f.written == nil {
		err = f.readFolder(root)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// readFolder finds the files that an earlier daemon has left.
func (f *Folder) readFolder(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	f.written = map[string]string{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			f.written[e.Name()] = unknown
		}
	}
	return nil
}

// checkOwner refuses a folder that another user can redirect or write into, because the daemon
// writes with the rights of root.
func (f *Folder) checkOwner(root *os.Root) error {
	at, err := root.Stat(".")
	if err != nil {
		return err
	}
	named, err := os.Lstat(f.path)
	if err != nil {
		return err
	}
	if !os.SameFile(named, at) {
		return fmt.Errorf("%s is a link: name the folder itself", f.path)
	}
	if uid := at.Sys().(*syscall.Stat_t).Uid; uid != 0 && uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s belongs to user %d: name a folder that only root can write into", f.path, uid)
	}
	if mode := at.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("others may write into %s, whose mode is %04o: name a folder that only root can write into", f.path, mode)
	}
	return nil
}

// replace gives a file a new text. Readers see the old or the new text, never a part.
func (f *Folder) replace(root *os.Root, name, text string) error {
	if was, ok := f.written[name]; ok && was == text && exists(root, name) {
		return nil
	}
	draft := ".gpuarb-" + name // not a number, so dcgm-exporter ignores it
	err := root.Remove(draft)  // left by a daemon that was killed, or any other file
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = write(root, draft, text)
	}
	if err == nil {
		err = root.Rename(draft, name)
	}
	if err == nil {
		f.written[name] = text
	}
	return err
}

// exists reports whether a file is there.
func exists(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// write creates a file with a text.
func write(root *os.Root, name, text string) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
