package jobfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpuarb/gpuarb/figures"
)

// vendor is that of the GPUs that DCGM knows; its numbers of them are NVML's, and ours.
const vendor = "nvidia"

// Folder is where the files lie. All files in it whose names are numbers are its own.
type Folder struct {
	path    string
	written map[string]string // by name; nil: nothing is known of what lies there
}

// New returns a folder, which need not be there.
func New(path string) *Folder { return &Folder{path: path} }

// Path is where it is.
func (f *Folder) Path() string { return f.path }

// Write has the files say which jobs have something of each GPU. Files that say so already are left alone, those of GPUs that are not there are emptied.
// Where one cannot be written the others are; the next call tries that one again.
func (f *Folder) Write(s figures.Snapshot) error {
	files := map[string]string{}
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Vendor == vendor {
			files[strconv.Itoa(d.Index)] = lines(jobsOn(&s, d))
		}
	}
	return f.put(files)
}

// Clear empties the files.
func (f *Folder) Clear() error { return f.put(nil) }

// jobsOn are the jobs that have a lease on a device whose process lives, or the device by claim or alone.
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

// put has the files hold these texts, and all others nothing.
func (f *Folder) put(files map[string]string) error {
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

// unknown is in the place of a text that was not read.
const unknown = "\x00"

// open makes the folder where it is not there. All that is done in it is done by the open folder: nobody who can turn a path
// has it done elsewhere.
func (f *Folder) open() (*os.Root, error) {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(f.path)
	if err != nil {
		return nil, err
	}
	if err = f.mayUse(root); err == nil && f.written == nil {
		err = f.look(root)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// look finds the files that a daemon of before has left.
func (f *Folder) look(root *os.Root) error {
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

// mayUse refuses a folder that another user can have lead anywhere, or write into: the daemon writes with root's rights.
func (f *Folder) mayUse(root *os.Root) error {
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

// replace has a file hold a text, at once for whoever reads it.
func (f *Folder) replace(root *os.Root, name, text string) error {
	if was, ok := f.written[name]; ok && was == text && isThere(root, name) {
		return nil
	}
	draft := ".gpuarb-" + name // no number
	err := root.Remove(draft)  // that of a daemon that was killed, or whatever lies there
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

// isThere says whether a file was not taken away.
func isThere(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

// write makes a file.
func write(root *os.Root, name, text string) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
