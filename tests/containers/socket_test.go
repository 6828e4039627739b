package containers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that programs in a container find the daemon by the read-only folder for clients, over restarts of
// the daemon and in whichever way its socket was made. They imitate a container with mounts; the files for Docker and
// Podman run real engines.

// shell is a script that runs a command as in a container. Of the daemon's files the command sees only the folder for clients ($1), read-only. The
// machine's folder ($2) is hidden, and the remaining arguments are the command. The library and gpuarb must find the socket by themselves.
const shell = `mount -t tmpfs none /run
mkdir -p /run/gpuarb/client
mount --bind "$1" /run/gpuarb/client
mount -o remount,bind,ro /run/gpuarb/client
mkdir /run/sim
mount --bind "$2/sim" /run/sim
mount -t tmpfs none "$2"
shift 2
exec "$@"`

// TestClientFolder checks that programs in a container that has only the folder for clients, read-only, are limited, also by the next
// daemon. The folder holds only the socket. The container sees no other file of the daemon, and cannot change the folder.
func TestClientFolder(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	folder := filepath.Join(filepath.Dir(m.Socket), "client")
	alone := func() {
		t.Helper()
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 1 || entries[0].Type() != os.ModeSocket {
			t.Fatalf("%s holds %v (%v), want the socket alone", folder, entries, err)
		}
	}
	alone()
	inside := func(env []string, words ...string) *rig.Program {
		env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
			return strings.HasPrefix(kv, "GPUARB_SOCKET=") || strings.HasPrefix(kv, "SIMCUDA_DIR=") || strings.HasPrefix(kv, "TMPDIR=")
		})
		script := []string{"--mount", "--propagation", "private", "sh", "-ec", shell, "sh", folder, m.Dir}
		return m.Begin(m.Command(append(env, "SIMCUDA_DIR=/run/sim", "GPUARB_MEMORY=64M"), "unshare", append(script, words...)...))
	}
	program := rig.Build(t, "programs/cudaprog-dlsym")
	bare := inside(m.PreloadEnv(), program)
	bare.Expect("ready")
	bare.Want("alloc a 48M", "ok")
	run := inside(m.Env(), rig.Build(t, "gpuarb"), "run", "--memory", "64M", "--", program)
	run.Expect("ready")
	run.Want("alloc a 48M", "ok")
	if leases := m.Snapshot().Leases; len(leases) != 2 {
		t.Fatalf("the daemon shows %+v", leases)
	}
	for range 2 { // the daemon is killed twice; below it is stopped
		m.Kill()
		m.Start()
		alone()
		bare.Want("alloc b 1M", "ok")
		bare.Want("free b", "ok")
		run.Want("alloc b 1M", "ok")
		run.Want("free b", "ok")
	}
	m.Stop()
	m.Start()
	alone()
	bare.Want("alloc b 17M", "err 2")
	run.Want("alloc b 17M", "err 2")
	look := inside(m.Env(), "sh", "-c", `ls -A /run/gpuarb; ls -A /run/gpuarb/client; rm -f /run/gpuarb/client/* 2>/dev/null || echo kept; touch /run/gpuarb/client/x 2>/dev/null || echo refused`)
	for _, line := range []string{"client", filepath.Base(m.Socket), "kept", "refused"} {
		look.Expect(line)
	}
	past := inside(m.Env(), rig.Build(t, "gpuarb"), "report")
	if code := past.Wait(); code != 69 {
		t.Errorf("gpuarb report in a container ends with %d, want 69", code)
	}
	for _, p := range []*rig.Program{bare, run, look} {
		p.End()
	}
}

// TestEitherPathOfTheSocket checks that the daemon restores a path of its socket soon after the path was removed or replaced, and that both
// paths lead to the daemon.
func TestEitherPathOfTheSocket(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "1G", NoMount: true})
	other := filepath.Join(filepath.Dir(m.Socket), "client", filepath.Base(m.Socket))
	same := func() bool {
		a, errA := os.Stat(m.Socket)
		b, errB := os.Stat(other)
		return errA == nil && errB == nil && os.SameFile(a, b)
	}
	if !same() {
		t.Fatal("the paths are not of one socket")
	}
	for name, spoil := range map[string]func() error{
		"the second is removed":  func() error { return os.Remove(other) },
		"its folder is removed":  func() error { return os.RemoveAll(filepath.Dir(other)) },
		"the first is removed":   func() error { return os.Remove(m.Socket) },
		"the second is replaced": func() error { _ = os.Remove(other); return stale(other) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, name+", and it is there again", same)
		for _, path := range []string{m.Socket, other} {
			if r := rig.Run(t, m.Gpuarb("--socket", path, "ps")); r.Code != 0 {
				t.Errorf("%s: gpuarb --socket %s: %s", name, path, r.Stderr)
			}
		}
	}
}

// stale makes a socket without a listening process at a path.
func stale(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}

// activated is a script that starts the daemon as systemd does: it passes a socket that already listens.
const activated = `#!/usr/bin/python3
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.makedirs(os.path.dirname("PATH"), exist_ok=True)
s.bind("PATH")
s.listen()
os.dup2(s.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv("DAEMON", ["gpuarbd"] + sys.argv[1:])
`

// TestSocketOfSystemd checks a daemon whose socket systemd has opened: in the folder for clients, like the present unit, or beside the
// daemon's own files, like an older unit. The daemon adds the other path, and replaces a socket that an earlier daemon left there.
func TestSocketOfSystemd(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"new": "client/gpuarb.sock", "old": "gpuarb.sock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
			if err := os.Mkdir(filepath.Join(m.Dir, "client"), 0o755); err != nil {
				t.Fatal(err)
			}
			left := map[string]string{"client/gpuarb.sock": m.Socket, "gpuarb.sock": filepath.Join(m.Dir, "client", "gpuarb.sock")}[at]
			if err := stale(left); err != nil {
				t.Fatal(err)
			}
			start := filepath.Join(m.Dir, "activated")
			text := strings.NewReplacer("PATH", filepath.Join(m.Dir, at), "DAEMON", rig.Build(t, "gpuarbd")).Replace(activated)
			if err := bounded.WriteProgram(start, []byte(text)); err != nil {
				t.Fatal(err)
			}
			m.Use(start)
			m.Start()
			for _, path := range []string{m.Socket, filepath.Join(m.Dir, "client", "gpuarb.sock")} {
				if r := rig.Run(t, m.Gpuarb("--socket", path, "ps")); r.Code != 0 {
					t.Errorf("gpuarb --socket %s: %s", path, r.Stderr)
				}
			}
		})
	}
}
