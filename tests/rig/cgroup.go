package rig

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// This file makes cgroups of versions 1 and 2 for tests of limits. tests/arbitration and OtherUser.BareIn run programs in them.

// Cgroup is a cgroup of the kernel, in which a test runs programs. The test must run as root.
type Cgroup struct {
	Path string // as in /proc/PID/cgroup
	dir  string
}

// Cgroup makes a cgroup that ends with the test, in a mount of cgroup v2 that belongs to the machine. The host's own mount of
// cgroup v2 may be in different places, and a container may have none.
func (m *Machine) Cgroup() *Cgroup {
	m.T.Helper()
	return m.hierarchy("cgroup", "cgroup2", "")
}

// CgroupV1 makes a cgroup in a cgroup v1 hierarchy without a controller, like systemd's own hierarchy.
func (m *Machine) CgroupV1() *Cgroup {
	m.T.Helper()
	return m.hierarchy("cgroup1", "cgroup", "none,name=gpuarb-test")
}

// hierarchy mounts a cgroup hierarchy in a folder of the machine, and makes a cgroup there.
func (m *Machine) hierarchy(folder, kind, options string) *Cgroup {
	m.T.Helper()
	root := filepath.Join(m.Dir, folder)
	if err := os.Mkdir(root, 0o755); err != nil {
		m.fatalf("%v", err)
	}
	if err := unix.Mount("none", root, kind, 0, options); err != nil {
		m.fatalf("mount %s: %v", kind, err)
	}
	name := filepath.Base(m.Dir)
	m.T.Cleanup(func() {
		Eventually(m.T, "the cgroups are gone", func() bool { return removeAll(filepath.Join(root, name)) })
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			m.T.Errorf("unmount %s: %v", kind, err)
		}
	})
	return m.makeCgroup(&Cgroup{Path: "/" + name, dir: filepath.Join(root, name)})
}

func (m *Machine) makeCgroup(c *Cgroup) *Cgroup {
	m.T.Helper()
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		m.fatalf("%v", err)
	}
	return c
}

// Below makes a cgroup in another.
func (m *Machine) Below(c *Cgroup, name string) *Cgroup {
	m.T.Helper()
	return m.makeCgroup(&Cgroup{Path: c.Path + "/" + name, dir: filepath.Join(c.dir, name)})
}

// Remove removes an empty cgroup as soon as its processes have ended. Make can make it again, at the same path.
func (m *Machine) Remove(c *Cgroup) {
	m.T.Helper()
	Eventually(m.T, "the cgroup can be removed", func() bool { return os.Remove(c.dir) == nil })
}

// Make makes a cgroup that was removed.
func (m *Machine) Make(c *Cgroup) { m.T.Helper(); m.makeCgroup(c) }

// removeAll kills the processes in a cgroup of version 2, and removes it and the cgroups below it. It returns false if a process has not ended yet.
func removeAll(dir string) bool {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return true
	}
	_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0) // version 1 has no such file: there the test ends its programs itself
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() && !removeAll(filepath.Join(dir, e.Name())) {
			return false
		}
	}
	return os.Remove(dir) == nil
}

// In returns a command that starts cmd inside the cgroup.
func (c *Cgroup) In(cmd *exec.Cmd) *exec.Cmd {
	words := append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(c.dir, "cgroup.procs")}, cmd.Args...)
	cmd.Path, cmd.Args = "/bin/sh", words
	return cmd
}

// Procs returns the path of the file into which a process writes its PID to move itself into the cgroup.
func (c *Cgroup) Procs() string { return filepath.Join(c.dir, "cgroup.procs") }

// Dir returns the path of the cgroup's folder.
func (c *Cgroup) Dir() string { return c.dir }
