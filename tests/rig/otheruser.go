package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file runs programs as other users, for tests of rights and of limits of users. The programs themselves are in program.go.

// OtherUser runs programs as another user of the machine, given by number. The user need not be in /etc/passwd.
// The test must run as root.
type OtherUser struct {
	m     *Machine
	build string
	words []string
}

// OtherUser returns the user uid, who can run the programs in build/. The user's own group has the same number; groups are
// further groups. The checkout may be readable only by its owner, so the user runs copies.
// Another process makes these copies, because the kernel refuses to execute a file that this process has open for writing.
func (m *Machine) OtherUser(uid int, groups ...int) *OtherUser {
	m.T.Helper()
	u := &OtherUser{m: m, build: filepath.Join(m.Dir, "everybody")}
	id := strconv.Itoa(uid)
	u.words = []string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"}
	if len(groups) > 0 {
		list := ""
		for _, g := range groups {
			list += "," + strconv.Itoa(g)
		}
		u.words[3] = "--groups=" + list[1:]
	}
	if _, err := os.Stat(u.build); err == nil {
		return u
	}
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		m.fatalf("%v", err)
	}
	args := []string{"-D", "-m", "0755", "-t", u.build}
	for _, name := range []string{"gpuarb", "gpuarb-probe", "libgpuarb.so", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1", "programs/cudaprog-dlsym"} {
		args = append(args, Build(m.T, name))
	}
	if out, err := bounded.Command(m.T, Patience, "install", args...).CombinedOutput(); err != nil {
		m.fatalf("install: %v\n%s", err, out)
	}
	return u
}

// Program returns the path of the user's copy of a program in build/.
func (u *OtherUser) Program(name string) string { return filepath.Join(u.build, name) }

// Command returns Machine.Command, run as the user.
func (u *OtherUser) Command(env []string, name string, args ...string) *exec.Cmd {
	env = append(env, "LD_LIBRARY_PATH="+u.build)
	words := append(append(append([]string{}, u.words[1:]...), name), args...)
	return u.m.Command(env, u.words[0], words...)
}

// Gpuarb returns Machine.Gpuarb, run as the user.
func (u *OtherUser) Gpuarb(args ...string) *exec.Cmd {
	return u.Command(append(u.m.Env(), "GPUARB_SOCKET="+u.m.Socket), u.Program("gpuarb"), args...)
}

// Bare starts the interactive test program under the bare preload.
func (u *OtherUser) Bare(args ...string) *Program {
	u.m.T.Helper()
	return u.m.Interact(u.bare(args...))
}

// BareIn starts the interactive test program under the bare preload, in a cgroup.
func (u *OtherUser) BareIn(c *Cgroup, args ...string) *Program {
	u.m.T.Helper()
	return u.m.Interact(c.In(u.bare(args...)))
}

// BareCommand returns the command that Bare starts, so that a test can put it into cgroups.
func (u *OtherUser) BareCommand(args ...string) *exec.Cmd { return u.bare(args...) }

func (u *OtherUser) bare(args ...string) *exec.Cmd {
	env := append(u.m.Env(), "GPUARB_SOCKET="+u.m.Socket)
	return u.Command(env, "env", append([]string{"LD_PRELOAD=" + u.Program("libgpuarb.so"), u.Program("cudaprog-dlsym")}, args...)...)
}
