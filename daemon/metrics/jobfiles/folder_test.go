package jobfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/figures"
)

// This file checks the files that tell dcgm-exporter which jobs use which GPU: their content, what
// happens to files of other programs and of a killed daemon, and that no user can make the daemon
// write elsewhere.

// two returns a machine with two NVIDIA GPUs and a GPU that DCGM does not know.
func two() figures.Snapshot {
	return figures.Snapshot{
		Devices: []figures.DeviceState{{Index: 0, Vendor: "nvidia"}, {Index: 1, Vendor: "nvidia"}, {Index: 2, Vendor: "amd"}},
		Leases: []figures.LeaseState{
			{Job: 12, Device: 0, State: figures.StateWaiting}, {Job: 7, Device: 0, State: figures.StateRunning},
			{Job: 7, Device: 0, State: figures.StateRunning}, {Job: 8, Device: 0, State: figures.StateDraining},
			{Job: 9, Device: 1, State: figures.StateLost}, {Job: 7, Device: 2, State: figures.StateRunning},
		},
	}
}

// holds checks that the folder has exactly these files.
func holds(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != len(want) {
		t.Errorf("%v, %v; want %q", entries, err, want)
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); string(got) != text || err != nil {
			t.Errorf("%s holds %q, %v; want %q", name, got, err, text)
		}
	}
}

// TestFiles checks that each GPU lists each job once, without jobs of dead processes. Files of
// other programs stay.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	f, s := New(dir), two()
	write := func() {
		t.Helper()
		if err := f.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	write()
	holds(t, dir, map[string]string{"0": "7\n12\n", "1": ""})

	s.Devices[1].Holders = []figures.HolderState{{Job: 30, Kind: figures.HoldsClaim}, {Job: 31, Kind: figures.HoldsSlot}, {Job: 4, Kind: figures.HoldsExclusive}}
	before, err := os.Stat(filepath.Join(dir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	write()
	holds(t, dir, map[string]string{"0": "7\n12\n", "1": "4\n30\n"})
	if after, err := os.Stat(filepath.Join(dir, "0")); err != nil || !os.SameFile(before, after) {
		t.Errorf("a file was written that has not changed: %v", err)
	}

	s.Leases = nil
	write()
	holds(t, dir, map[string]string{"0": "", "1": "4\n30\n"})
	if err := f.Clear(); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, map[string]string{"0": "", "1": ""})
}

// TestLeftBehind checks that files of a killed daemon are emptied, also those of missing GPUs.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0", "7", "notes", ".gpuarb-0"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("99\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := two()
	s.Leases = nil
	if err := New(dir).Write(s); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, map[string]string{"0": "", "1": "", "7": "", "notes": "99\n"})
}

// TestReplaced checks that a reader of an open file gets the old text to its end, and never a part
// of the new one.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	f, s := New(dir), two()
	if err := f.Write(s); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(dir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := f.Clear(); err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, 100); true {
		if n, err := open.Read(got); err != nil || string(got[:n]) != "7\n12\n" {
			t.Errorf("%q, %v", got[:n], err)
		}
	}
}

// TestNotWritable checks that a failed write is reported and tried again.
func TestNotWritable(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "file", "in")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := New(in)
	if err := f.Write(two()); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("below a file: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(in, "0", "full"), 0o700); err != nil { // a folder at the place of a file
		t.Fatal(err)
	}
	if err := f.Write(two()); err == nil || !strings.Contains(err.Error(), "0") {
		t.Errorf("over a folder: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(in, "1")); err != nil || len(got) != 0 {
		t.Errorf("the other file: %q, %v", got, err)
	}
	if err := os.RemoveAll(filepath.Join(in, "0")); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(two()); err != nil {
		t.Errorf("after it was put right: %v", err)
	}
	holds(t, in, map[string]string{"0": "7\n12\n", "1": ""})
}

// TestTraps checks that no user can make the daemon write into another folder, and that links are
// replaced, never followed.
func TestTraps(t *testing.T) {
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dcgm")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0", "5", ".gpuarb-0", ".gpuarb-1", ".gpuarb-5"} {
		if err := os.Symlink(victim, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := New(dir).Write(two()); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, map[string]string{"0": "7\n12\n", "1": "", "5": ""})
	if got, err := os.ReadFile(victim); string(got) != "mine" || err != nil {
		t.Errorf("the file that links led to holds %q, %v", got, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := New(link).Write(two()); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("in place of a folder a link: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := New(dir).Write(two()); err == nil || !strings.Contains(err.Error(), "others may write into") {
		t.Errorf("a folder that all may write into: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, 61234, 61234)); err != nil {
		t.Fatal(err)
	}
	if err := New(dir).Write(two()); err == nil || !strings.Contains(err.Error(), "belongs to user 61234") {
		t.Errorf("a folder of somebody else's: %v", err)
	}
}

// TestFolderMadeAnew checks that the next call restores removed files.
func TestFolderMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dcgm")
	f, s := New(dir), two()
	for range 2 {
		if err := f.Write(s); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, map[string]string{"0": "7\n12\n", "1": ""})
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
