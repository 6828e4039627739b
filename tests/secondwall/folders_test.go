package secondwall

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file checks folders of cgroups that are not what they should be: links, missing files, folders that go.

// TestFollowsNoLink: a symbolic link in the place of the folder or of the file leads nowhere, and its target is not written to.
func TestFollowsNoLink(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	pod := m.Cgroup()
	box, file := m.Below(pod, "box"), m.Below(pod, "file")
	target, in := f.make(pod.Path+"-target"), f.make(file.Path)
	link := func(to *folder, name, at string) {
		to.AddChild(name, to.NewPersistentInode(context.Background(), &fs.MemSymlink{Data: []byte(at)}, f.stable(syscall.S_IFLNK)), true)
	}
	link(f.make(pod.Path), "box", filepath.Join(f.sysfs, "fs/cgroup", pod.Path+"-target"))
	link(in, "dmem.max", filepath.Join(f.sysfs, "fs/cgroup", pod.Path+"-target", "dmem.max"))
	open(t, m, box, "100M", "box")
	open(t, m, file, "100M", "file")
	for name, why := range map[string]string{"box": "not a directory", "file": "too many levels of symbolic links"} {
		rig.Eventually(t, "the failure is said", func() bool {
			fail := listed(t, m, name, 0).DriverFail
			return fail != nil && strings.Contains(*fail, why)
		})
	}
	if target.writes != 0 {
		t.Error("the target of the link was written to")
	}
}

// TestNeedsTheController: a cgroup whose parent does not enable the controller is held by the library alone, which is said with the advice.
func TestNeedsTheController(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	in.RmChild("dmem.max")
	open(t, m, box, "100M", "box")
	says(t, m, []string{"doctor"}, "dmem.max is missing: enable the controller (echo +dmem >", "cgroup.subtree_control)")
	f.add(in, "dmem.max", in.text)
	becomes(t, in, first, wall(100))
}

// TestFolderGoes: with a folder that is removed, its limit is gone: nothing is put back, and nothing is said. If the folder is made again, the
// new folder gets the limit of the job that has it now.
func TestFolderGoes(t *testing.T) {
	t.Parallel()
	f := newDmem(t, first, second)
	m := kernelMachine(t, f, rig.Options{})
	box := m.Cgroup()
	in := f.make(box.Path)
	job(t, m, "open", "--cgroup", box.Path, "--memory", "100M", "--name", "box", "--until", "closed")
	becomes(t, in, first, wall(100))
	f.remove(box.Path)
	rig.Eventually(t, "the limit is gone", func() bool { return listed(t, m, "box", 0).DriverMax == nil })
	again := f.make(box.Path)
	becomes(t, again, first, wall(100))
	f.remove(box.Path)
	job(t, m, "close", "box")
	last := f.make(box.Path)
	rig.Eventually(t, "no record is left", func() bool { return records(t, m) == 0 })
	if last.writes != 0 {
		t.Error("a new folder was written to after the job was closed")
	}
	if got := rig.Run(t, m.Gpuarb("events", "--kind", "driver_limit")); strings.Contains(got.Stdout, "on GPU 0") || strings.Contains(got.Stdout, "on GPU 1") {
		t.Errorf("events: %s", got.Stdout)
	}
}

// records returns the number of limits that the daemon has recorded, in a copy of its file.
func records(t *testing.T, m *rig.Machine) (n int) {
	t.Helper()
	content, err := os.ReadFile(m.Socket + ".state.walls")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path+".walls", content, 0o600); err != nil {
		t.Fatal(err)
	}
	walls, aside, err := statefile.OpenWalls(path)
	if err != nil || aside != nil {
		t.Fatal(err, aside)
	}
	walls.Each(func(int, *statefile.Wall) { n++ })
	return n
}
