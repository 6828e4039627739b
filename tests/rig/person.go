package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// Person is somebody else on the machine, by number: nobody has to be in /etc/passwd. It
// takes root to become him.
type Person struct {
	m     *Machine
	build string
	words []string
}

// Person lets a user run what make built; groups are those that he has beside his own, which
// has his number. The checkout may lie where only its owner may look, so he runs copies,
// which are made by another process: one that this one has open for writing could not be
// started.
func (m *Machine) Person(uid int, groups ...int) *Person {
	m.T.Helper()
	u := &Person{m: m, build: filepath.Join(m.Dir, "everybody")}
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

// Program is the path of what make built, as the user has it.
func (u *Person) Program(name string) string { return filepath.Join(u.build, name) }

// Command is Machine.Command as the user.
func (u *Person) Command(env []string, name string, args ...string) *exec.Cmd {
	env = append(env, "LD_LIBRARY_PATH="+u.build)
	words := append(append(append([]string{}, u.words[1:]...), name), args...)
	return u.m.Command(env, u.words[0], words...)
}

// Gpuarb is Machine.Gpuarb as the user.
func (u *Person) Gpuarb(args ...string) *exec.Cmd {
	return u.Command(append(u.m.Env(), "GPUARB_SOCKET="+u.m.Socket), u.Program("gpuarb"), args...)
}

// Bare starts the program that does as it is told under the bare preload.
func (u *Person) Bare(args ...string) *Program {
	u.m.T.Helper()
	return u.m.Interact(u.bare(args...))
}

// BareIn does so in a cgroup.
func (u *Person) BareIn(c *Cgroup, args ...string) *Program {
	u.m.T.Helper()
	return u.m.Interact(c.In(u.bare(args...)))
}

// BareCommand returns the command that Bare starts, so that a test can put it into cgroups.
func (u *Person) BareCommand(args ...string) *exec.Cmd { return u.bare(args...) }

func (u *Person) bare(args ...string) *exec.Cmd {
	env := append(u.m.Env(), "GPUARB_SOCKET="+u.m.Socket)
	return u.Command(env, "env", append([]string{"LD_PRELOAD=" + u.Program("libgpuarb.so"), u.Program("cudaprog-dlsym")}, args...)...)
}
