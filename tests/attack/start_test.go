package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a daemon which cannot start says why, and that it serves clients in unusual places: a relative
// path, a read-only runtime folder, a socket of systemd, or a socket that was removed. state_test.go has starts with a
// damaged state file.

func gpuarbd(t testing.TB) string {
	t.Helper()
	if *daemonPath != "" {
		return *daemonPath
	}
	return rig.Build(t, "gpuarbd")
}

// TestImpossibleStarts: each impossible start ends with a line that says what is wrong, and leaves no files behind.
func TestImpossibleStarts(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	sock := filepath.Join(m.Dir, "x.sock")
	check(t, os.WriteFile(filepath.Join(m.Dir, "file"), nil, 0o600))
	check(t, os.Mkdir(filepath.Join(m.Dir, "dir.sock"), 0o700))
	check(t, os.WriteFile(sock+".public", nil, 0o600))
	check(t, unix.Mkfifo(filepath.Join(m.Dir, "fifo.sock.state"), 0o600))
	long := filepath.Join(m.Dir, strings.Repeat("long-", 25)+".sock")
	readonly := smallDisk(t, 1<<20)
	check(t, unix.Mount("", readonly, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"long path":       {[]string{"--socket", long, "--mount", "none"}, []string{long, "107"}},
		"below a file":    {[]string{"--socket", m.Dir + "/file/x.sock", "--mount", "none"}, []string{m.Dir + "/file", "not a directory"}},
		"a folder":        {[]string{"--socket", m.Dir + "/dir.sock", "--mount", "none"}, []string{m.Dir + "/dir.sock"}},
		"read-only":       {[]string{"--socket", readonly + "/x.sock", "--mount", "none"}, []string{readonly, "read-only"}},
		"state a pipe":    {[]string{"--socket", m.Dir + "/fifo.sock", "--mount", "none"}, []string{"fifo.sock.state", "remove it"}},
		"no mount parent": {[]string{"--socket", sock, "--mount", m.Dir + "/no/such"}, []string{m.Dir + "/no", "no such file"}},
		"mount read-only": {[]string{"--socket", sock, "--mount", readonly + "/gpu"}, []string{readonly, "read-only"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := rig.Run(t, m.Command(m.Env(), gpuarbd(t), c.args...))
			if r.Code != 1 {
				t.Errorf("exit status %d", r.Code)
			}
			last := r.Stderr[strings.LastIndex(strings.TrimSpace(r.Stderr), "\n")+1:]
			for _, part := range c.says {
				if !strings.Contains(last, part) {
					t.Errorf("%q is missing in: %s", part, last)
				}
			}
		})
	}
	if _, err := os.Stat(sock); err == nil {
		t.Error("a daemon that did not start leaves its socket")
	}
}

// TestRelativePaths: relative paths are resolved in the folder in which the daemon was started.
func TestRelativePaths(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	cmd := m.Command(m.Env(), gpuarbd(t), "--socket", "here.sock", "--mount", "none")
	cmd.Dir = m.Dir
	check(t, cmd.Start())
	m.Socket = filepath.Join(m.Dir, "here.sock")
	awaitSocket(m)
	p := cudaprog(m)
	say(t, p, "alloc a 1M", "ok")
	agree(t, m)
	p.End()
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	check(t, rig.Wait(t, rig.Patience, cmd))
}

// TestNamespaceOfItsOwn: a daemon in a PID namespace that hides its clients says why it cannot start, and what to do.
func TestNamespaceOfItsOwn(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	cmd := m.Command(m.Env(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", gpuarbd(t), "--socket", m.Socket, "--mount", "none")
	check(t, cmd.Start())
	awaitSocket(m)
	if r := rig.Run(t, m.Gpuarb("ps")); r.Code != 69 || !strings.Contains(r.Stderr, "--pid=host") {
		t.Errorf("exit status %d: %s", r.Code, r.Stderr)
	}
	check(t, cmd.Process.Kill())
	_ = rig.Wait(t, rig.Patience, cmd)
}

// activate stands in for systemd: it creates a machine's socket, and starts the daemon
// with it when the first client connects.
func activate(m *rig.Machine, kind ...string) *exec.Cmd {
	args := append(kind, "-l", m.Socket, "-E", "LD_LIBRARY_PATH", "-E", "SIMCUDA_DIR", "-E", "SIMCUDA_DEVICES",
		gpuarbd(m.T), "--socket", m.Socket, "--mount", "none")
	cmd := m.Command(m.Env(), "systemd-socket-activate", args...)
	cmd.Stderr = m // shown if the test fails
	return cmd
}

// awaitSocket waits for a daemon that the machine did not start. The socket has a
// name before clients can connect to it.
func awaitSocket(m *rig.Machine) {
	m.T.Helper()
	rig.Eventually(m.T, "clients can connect", func() bool {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// awaitListening does what awaitSocket does without connecting, because a connection would make systemd's stand-in
// start the daemon.
func awaitListening(m *rig.Machine) {
	m.T.Helper()
	m.AwaitLog("Listening on ")
}

// TestReadOnlyRuntime: if its runtime folder is read-only, the daemon of an inherited socket
// runs without a state file.
func TestReadOnlyRuntime(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	dir := smallDisk(t, 1<<20)
	m.Socket = filepath.Join(dir, "gpuarb.sock")
	cmd := activate(m, "--seqpacket")
	check(t, cmd.Start())
	awaitListening(m)
	check(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	agree(t, m)
	p.End()
	m.AllGone()
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	check(t, rig.Wait(t, rig.Patience, cmd))
	m.AwaitLog("the state cannot be kept")
	m.AwaitLog("read-only")
}

// TestSocketActivation: a socket that systemd passed to the daemon stays when the daemon ends. Clients that connect
// while no daemon runs wait.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	cmd := activate(m, "--seqpacket")
	check(t, cmd.Start())
	awaitListening(m)
	p := cudaprog(m) // its first call starts the daemon
	say(t, p, "alloc a 100M", "ok")
	agree(t, m)
	p.End()
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	check(t, rig.Wait(t, rig.Patience, cmd))
	if _, err := os.Stat(m.Socket); err != nil {
		t.Errorf("the daemon removed a socket that it had not made: %v", err)
	}
	check(t, os.Remove(m.Socket))

	cmd = activate(m)
	cmd.Stderr = nil
	out, err := cmd.StderrPipe()
	check(t, err)
	check(t, cmd.Start())
	rig.Eventually(t, "the stream socket is there", func() bool {
		return m.Command(m.Env(), "/usr/bin/python3", "-c", "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])", m.Socket).Run() == nil
	})
	text := make([]byte, 4096)
	for !strings.Contains(string(text), "SOCK_SEQPACKET") {
		n, err := out.Read(text)
		if err != nil {
			t.Fatalf("a stream socket was not refused: %v", err)
		}
		text = text[:n:cap(text)][:n]
		text = append(text, make([]byte, 4096-n)...)
	}
	_ = rig.Wait(t, rig.Patience, cmd)
}

// TestSocketRemoved: if the socket is removed or replaced, the daemon makes it again, and new programs are held to their limits.
// If the daemon may not make the socket, the log says what to do.
func TestSocketRemoved(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	m.Socket = filepath.Join(m.Dir, "run", "gpuarb.sock")
	m.Start()
	all := []*rig.Program{cudaprog(m)}
	say(t, all[0], "alloc a 40M", "ok")
	for i, harm := range []func() error{
		func() error { return os.Remove(m.Socket) },
		func() error { return errors.Join(os.Remove(m.Socket), os.Remove(m.Socket+".lock")) },
		func() error { return os.RemoveAll(filepath.Dir(m.Socket)) },
		func() error {
			other := filepath.Join(m.Dir, "other")
			check(t, errors.Join(os.WriteFile(other, nil, 0o600), os.Rename(other, m.Socket)))
			m.AwaitLog("programs that start now find no daemon")
			return os.Remove(m.Socket)
		},
	} {
		check(t, harm())
		rig.Eventually(t, "the socket is made again", func() bool {
			return strings.Count(m.Log(), "it is made again") == i+1
		})
		p := cudaprog(m)
		say(t, p, "alloc a 40M", "ok")
		say(t, all[i], "alloc b 10M", "ok")
		all = append(all, p)
		settle(t, m, all)
	}
	m.Stop()
	if _, err := os.Lstat(m.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stopped, and the socket is there: %v", err)
	}
	m.Start()
	for _, p := range all {
		say(t, p, "alloc c 1M", "ok")
	}
	settle(t, m, all)

	other := machine(t, rig.Options{Devices: "1G", NoMount: true, Stopped: true})
	cmd := activate(other, "--seqpacket")
	check(t, cmd.Start())
	awaitListening(other)
	p := cudaprog(other)
	say(t, p, "alloc a 40M", "ok")
	check(t, os.Remove(other.Socket))
	other.AwaitLog("systemctl restart gpuarbd.socket gpuarbd.service")
	p.End()
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	check(t, rig.Wait(t, rig.Patience, cmd))
}

// TestSignals: the daemon gets SIGHUP with a mistake in the configuration, many SIGHUP, and SIGTERM under load. It
// keeps the old configuration, says why, stops, and the next daemon holds the program to its limit.
func TestSignals(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"500M\"\n"})
	p := cudaprog(m)
	config := filepath.Join(m.Dir, "gpuarb.toml")
	for round := range 4 {
		p.Tell(fmt.Sprintf("threads 4 300 200M %d", round+1))
		check(t, os.WriteFile(config, []byte("schema_version = 1\n[defaults]\nmemory.max = \"4Q\"\n"), 0o600))
		check(t, syscall.Kill(m.DaemonPID(), syscall.SIGHUP))
		rig.Eventually(t, "the log says why", func() bool {
			return strings.Count(m.Log(), "the old one stays in force") == round+1 && strings.Contains(m.Log(), "4Q")
		})
		check(t, os.WriteFile(config, []byte("schema_version = 1\n[defaults]\nmemory.max = \"500M\"\n"), 0o600))
		for range 20 {
			check(t, syscall.Kill(m.DaemonPID(), syscall.SIGHUP))
		}
		m.Stop()
		m.Start()
		if got := p.Line(); !strings.HasPrefix(got, "threads ok") {
			t.Errorf("under a stop: %s", got)
		}
		settle(t, m, []*rig.Program{p})
	}
	say(t, p, "alloc a 500M", "ok")
	say(t, p, "alloc b 1", "err 2")
}
