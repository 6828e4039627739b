package jobfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
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
func (f *Folder) Write(s accounting.Snapshot) error {
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
func jobsOn(s *accounting.Snapshot, d *accounting.DeviceState) []uint64 {
	var jobs []uint64
	for i := range s.Leases {
		l := &s.Leases[i]
		if l.Device == d.Index && l.State != accounting.StateDraining && l.State != accounting.StateLost {
			jobs = append(jobs, l.Job)
		}
	}
	for _, h := range d.Holders {
		if h.Kind != accounting.HoldsSlot {
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
	if f.written == nil {
		if err := f.look(); err != nil {
			return err
		}
	}
	var failed error
	for name := range f.written {
		if files[name] == "" {
			failed = errors.Join(failed, f.replace(name, ""))
		}
	}
	for name, text := range files {
		failed = errors.Join(failed, f.replace(name, text))
	}
	return failed
}

// unknown is in the place of a text that was not read.
const unknown = "\x00"

// look makes the folder, and finds the files that a daemon of before has left.
func (f *Folder) look() error {
	if err := os.MkdirAll(f.path, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.path)
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

// replace has a file hold a text, at once for whoever reads it.
func (f *Folder) replace(name, text string) error {
	if was, ok := f.written[name]; ok && was == text {
		return nil
	}
	draft := filepath.Join(f.path, ".gpuarb-"+name) // no number
	err := os.WriteFile(draft, []byte(text), 0o644)
	if err == nil {
		err = os.Rename(draft, filepath.Join(f.path, name))
	}
	if err == nil {
		f.written[name] = text
	}
	return err
}
