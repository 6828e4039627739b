package demo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the playground works as its text says, as root and as an ordinary user, and that it leaves nothing behind, however it ends.

// prompt is printed by the playground's shell before each command.
const prompt = "(gpuarb playground)"

// playground is a playground on a terminal.
type playground struct {
	*rig.Terminal
	m   *rig.Machine
	tmp string // its temporary folder is made in this folder
}

// open opens a playground. before is the beginning of a command that runs it, such as a change of the user.
func open(t *testing.T, before, top string) *playground {
	t.Helper()
	m := rig.New(t, rig.Options{Stopped: true, NoMount: true, Quiet: true})
	p := &playground{m: m, tmp: filepath.Join(m.Dir, "tmp")}
	if err := os.MkdirAll(p.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{m.Dir, p.tmp} { // an ordinary user goes there
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		defer p.kill()
		p.gone()
	})
	p.Terminal = m.Terminal(200, 50, "exec "+before+" "+top+"/tests/demo/playground.sh",
		"TMPDIR="+p.tmp, "HOME="+p.tmp, "GPUARB_JOB=0123", "BUILD="+top+"/build")
	p.Await(prompt)
	return p
}

// enter types a line.
func (p *playground) enter(line string) {
	p.m.T.Helper()
	p.Press(line, "Enter")
}

// left returns what is left of the playground: its folder, mounts, and processes that have its socket in their environment.
func (p *playground) left() (left []string) {
	folders, _ := filepath.Glob(p.tmp + "/*")
	left = append(left, folders...)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.tmp) {
			left = append(left, line)
		}
	}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environs {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "GPUARB_SOCKET="+p.tmp) {
			left = append(left, filepath.Dir(file))
		}
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), p.tmp+"/gpuarb-playground-") {
			left = append(left, string(text))
		}
	}
	return left
}

// gone waits until nothing is left.
func (p *playground) gone() {
	p.m.T.Helper()
	var left []string
	defer func() {
		if p.m.T.Failed() {
			p.m.T.Logf("left: %q", left)
		}
	}()
	rig.Eventually(p.m.T, "nothing is left of the playground", func() bool {
		left = p.left()
		return len(left) == 0
	})
}

// kill ends the processes that are left after a failure, so that they do not outlive the test.
func (p *playground) kill() {
	for _, left := range p.left() {
		if pid, err := strconv.Atoi(strings.TrimPrefix(left, "/proc/")); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// checkout returns the path of this checkout, whose programs are built.
func checkout(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// try does what the playground proposes, and looks at the answers. Without the right to open /dev/fuse a user has no files.
func (p *playground) try(files bool) {
	p.m.T.Helper()
	p.enter("clear; gpuarb devices")
	p.Await("Simulated GPU 0", "Simulated GPU 1", prompt)
	p.enter("clear; gpuarb run --name a -- hold 3G &")
	p.Await("hold: has 3G on GPU 0")
	list := "gpuarb ps --bytes"
	if files {
		list = "cat $GPU/leases"
	}
	p.enter("clear; echo rows: $(" + list + " | grep -c 3221225472)")
	p.Await("rows: 1")
	p.enter("clear; gpuarb run --memory 1G -- hold 2G")
	p.Await("gpuarb: ", "hold: out of memory")
	p.enter("clear; gpuarb run --wait -- hold 6G &")
	p.Await("waits for 6 GiB on GPU 0")
	p.enter("clear; kill %1")
	p.Await("hold: has 6G on GPU 0")
	p.enter("clear; reload")
	p.Await("read again: ", prompt)
	p.enter("clear; gpuarb run -- hold 1G 1")
	p.Await("hold: has 1G on GPU 1")
	p.Press("C-c")
	p.enter("echo code $?")
	p.Await("code 130", prompt)
}

// TestPlayground: what the playground proposes works, and exit leaves nothing behind, not even programs in the background.
func TestPlayground(t *testing.T) {
	t.Parallel()
	p := open(t, "", checkout(t))
	p.try(true)
	if len(p.left()) < 3 {
		t.Errorf("the test does not see what there is: %q", p.left())
	}
	p.enter("exit")
	p.gone()
}

// TestPlaygroundOfAUser: an ordinary user has the same, also in a checkout that belongs to another user.
func TestPlaygroundOfAUser(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	for dir := top; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := `set -e; cd "$0"; mkdir -p "$1/build" "$1/tests"; cp -r tests/demo "$1/tests"; cp -r build/gpuarb build/gpuarbd build/libgpuarb.so build/sim "$1/build"; chmod -R a+rX "$1"`
	if out, err := bounded.Command(t, rig.Patience, "sh", "-c", script, checkout(t), top).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p := open(t, "setpriv --reuid=61234 --regid=61234 --clear-groups", top)
	p.enter("clear; id -u")
	p.Await("61234")
	info, err := os.Stat("/dev/fuse")
	if err != nil {
		t.Fatal(err)
	}
	p.try(info.Mode().Perm()&0o006 == 0o006)
	p.enter("exit")
	p.gone()
}

// TestPlaygroundEnds: however the playground ends, nothing is left behind, also not a program in the background.
func TestPlaygroundEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *playground){
		"Ctrl-D": func(p *playground) { p.Press("C-d") },
		"Ctrl-C": func(p *playground) { // ends no playground by itself
			p.Press("C-c")
			p.enter("clear; echo goes on")
			p.Await("goes on", prompt)
			p.enter("exit")
		},
		"a failed command": func(p *playground) { p.enter("false; exit 3") },
		"SIGTERM":          func(p *playground) { p.signal(p.PID(), unix.SIGTERM) },
		"SIGKILL":          func(p *playground) { p.signal(p.PID(), unix.SIGKILL) },
		"SIGHUP":           func(p *playground) { p.signal(p.PID(), unix.SIGHUP) },
		"SIGKILL of its shell": func(p *playground) {
			p.enter("clear; kill -9 $$")
		},
		"SIGKILL of its daemon": func(p *playground) {
			p.enter("clear; kill -9 $(cat $(dirname $GPU)/daemon.pid); exit")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, "", checkout(t))
			p.enter("clear; gpuarb run -- hold 3G &")
			p.Await("hold: has 3G on GPU 0")
			end(p)
			p.gone()
		})
	}
}

func (p *playground) signal(pid int, sig unix.Signal) {
	p.m.T.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		p.m.T.Fatal(err)
	}
}
