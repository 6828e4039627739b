package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a daemon which is started wrongly says what is wrong, that machines without a GPU are served,
// and that an ordinary user can run a daemon. mistakes_test.go has mistakes in commands. portable, which copies the
// programs for another user, is used by other files, too.

// mistake is a command with a user's mistake: the command, the texts that stderr must contain,
// and its exit status. Nothing may go to stdout.
type mistake struct {
	name string
	cmd  *exec.Cmd
	says []string
	code int
}

func (c mistake) check(t *testing.T) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		r := rig.Run(t, c.cmd)
		if r.Code != c.code {
			t.Errorf("exit status %d, want %d", r.Code, c.code)
		}
		for _, part := range c.says {
			if !strings.Contains(r.Stderr, part) {
				t.Errorf("%q is missing in:\n%s", part, r.Stderr)
			}
		}
		if r.Stdout != "" {
			t.Errorf("stdout: %s", r.Stdout)
		}
	})
}

// daemon returns a gpuarbd command on a machine, for a start that must fail.
func daemon(t *testing.T, m *rig.Machine, args ...string) *exec.Cmd {
	return m.Command(m.Env(), rig.Build(t, "gpuarbd"), args...)
}

// TestMistakesOfTheDaemon: a daemon that is started wrongly prints what is wrong and does not start.
func TestMistakesOfTheDaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	other := filepath.Join(m.Dir, "other.sock")
	file := filepath.Join(m.Dir, "file")
	config := filepath.Join(m.Dir, "bad.toml")
	busy := filepath.Join(m.Dir, "busy")
	write(t, file, "")
	write(t, config, "schema_version = 1\n[defaults]\nmemory.max = \"4Q\"\nmemroy.max = \"1G\"\non_full = \"panic\"\n")
	if err := os.Mkdir(busy, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", busy, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(busy, 0) })
	noHome := daemon(t, m, "--user")
	noFuse := m.Command(m.Env(), "unshare", "-m", "sh", "-c", `mount -t tmpfs none /dev && exec "$@"`, "sh",
		rig.Build(t, "gpuarbd"), "--socket", other, "--mount", filepath.Join(m.Dir, "gpu2"))
	for _, c := range []mistake{
		{"unknown flag", daemon(t, m, "--sokcet", "x"), []string{"--sokcet"}, 2},
		{"an argument", daemon(t, m, "x"), []string{`"x"`}, 2},
		{"two daemons", daemon(t, m, "--socket", m.Socket, "--mount", "none"),
			[]string{m.Socket, fmt.Sprint(m.DaemonPID())}, 1},
		{"busy mount point", daemon(t, m, "--socket", other, "--mount", busy), []string{busy, "mounted"}, 1},
		{"live mount of another daemon", daemon(t, m, "--socket", other, "--mount", m.Mount), []string{m.Mount, "mounted"}, 1},
		{"mount point is a file", daemon(t, m, "--socket", other, "--mount", file), []string{file, "not a directory"}, 1},
		{"no /dev/fuse", noFuse, []string{"/dev/fuse", "--mount none"}, 1},
		{"no XDG_RUNTIME_DIR", noHome, []string{"XDG_RUNTIME_DIR", "--socket"}, 1},
		{"no such configuration", daemon(t, m, "--config", file+".toml"), []string{file + ".toml"}, 78},
		{"malformed configuration", daemon(t, m, "--socket", other, "--config", config),
			[]string{config + ":3: ", "4Q", config + ":4: ", "memroy.max", config + ":5: ", "panic"}, 78},
		{"the same, only checked", daemon(t, m, "--check-config", "--config", config),
			[]string{config + ":3: ", config + ":4: ", config + ":5: "}, 78},
		{"the same, by the command", m.Gpuarb("config", "check", config),
			[]string{config + ":3: ", config + ":4: ", config + ":5: "}, 78},
	} {
		c.check(t)
	}
	if got := m.Read("version"); got == "" {
		t.Error("the first daemon no longer serves")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNoGPUAtAll: on a machine without a GPU, daemon and commands run and say that there is none.
func TestNoGPUAtAll(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "none"})
	mistake{"devices", m.Gpuarb("devices"), []string{"no GPU"}, 69}.check(t)
	m.AwaitLog("level=WARN msg=devices found=0")
	if got := strings.Count(m.Read("leases"), "\n"); got != 1 {
		t.Errorf("leases has %d lines", got)
	}
	r := rig.Run(t, m.Gpuarb("run", "--memory", "1G", "--", "echo", "hello"))
	if r.Code != 0 || r.Stdout != "hello\n" {
		t.Errorf("a program without a GPU call: exit status %d, %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
	r = rig.Run(t, m.Gpuarb(append([]string{"run", "--", "ffmpeg"}, append(source("640x360", 1), "-vf", oneUpload, "-f", "null", "-")...)...))
	if r.Code == 0 || !strings.Contains(r.Stderr, "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("the driver's own error must come through: exit status %d\n%s", r.Code, r.Stderr)
	}
}

// TestRootless: an ordinary user can run a daemon in XDG_RUNTIME_DIR, and programs find it without a flag.
func TestRootless(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", Stopped: true, NoMount: true})
	runtime := filepath.Join(m.Dir, "run")
	for _, dir := range []string{runtime, filepath.Join(m.Dir, "sim")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	build := portable(t, m)
	if err := os.MkdirAll(filepath.Join(m.Dir, ".config/gpuarb"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The owner of a daemon may do what root may do, including asking for more than the rule allows.
	if err := os.WriteFile(filepath.Join(m.Dir, ".config/gpuarb/gpuarb.toml"),
		[]byte("schema_version = 1\n[defaults]\nmemory.max = \"1GiB\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	nobody(t, m.Dir)
	env := append(m.Env(), "XDG_RUNTIME_DIR="+runtime, "HOME="+m.Dir, "LD_LIBRARY_PATH="+build)
	as := func(args ...string) *exec.Cmd {
		return m.Command(env, "setpriv", append([]string{"--reuid=65534", "--regid=65534", "--clear-groups"}, args...)...)
	}
	// /dev/fuse may be closed to ordinary users, so mount a node of our own over it in a mount namespace.
	node := filepath.Join(m.Dir, "fuse")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(node, 0o666); err != nil {
		t.Fatal(err)
	}
	script := `
		set -e
		mount --bind "$1" /dev/fuse
		exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -c '
			set -e
			coproc daemon { exec "$0" --user 2>&1; }
			while read -r line <&"${daemon[0]}"; do [[ $line == *msg=ready* ]] && break; done
			"$1" run --memory 16M -- ffmpeg "${@:3}"
			cat "$XDG_RUNTIME_DIR/gpuarb/gpu/leases"
			"$1" ps --json >/dev/null
			"$1" run --memory 2G -- true
			for limit in "$XDG_RUNTIME_DIR"/gpuarb/gpu/devices/*/slots.max; do echo 2 >"$limit"; cat "$limit" >&2; done
			kill "$daemon_PID"
			wait "$daemon_PID"
		' "${@:2}"`
	args := append([]string{"-m", "bash", "-c", script, "bash", node, filepath.Join(build, "gpuarbd"), filepath.Join(build, "gpuarb"), "--"},
		append(source("640x360", 5), "-vf", oneUpload, "-f", "null", "-")...)
	r := rig.Run(t, m.Command(env, "unshare", args...))
	if r.Code != 0 || !strings.HasPrefix(strings.TrimSpace(r.Stdout), "PID USER") {
		t.Errorf("exit status %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	mistake{"no daemon any more", bounded.Bare(as(filepath.Join(build, "gpuarb"), "ps")),
		[]string{filepath.Join(runtime, "gpuarb/gpuarb.sock"), "/run/gpuarb/gpuarb.sock"}, 69}.check(t)
}

// portable copies the programs that another user runs into the machine's folder, because the checkout
// may be readable only by its owner.
func portable(t *testing.T, m *rig.Machine) string {
	t.Helper()
	build := filepath.Join(m.Dir, "build")
	if err := os.Mkdir(build, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpuarb", "gpuarbd", "libgpuarb.so", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1"} {
		to := filepath.Join(build, filepath.Base(name))
		copyFile(t, rig.Build(t, name), to)
		if err := os.Chmod(to, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return build
}

// nobody gives a folder and its content to the user nobody.
func nobody(t *testing.T, dir string) {
	t.Helper()
	if err := bounded.Command(t, bounded.Patience, "chown", "-R", "65534:65534", dir).Run(); err != nil {
		t.Fatal(err)
	}
}
