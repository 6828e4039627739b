package attack

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds that a daemon of an ordinary user ends on SIGTERM although processes still read and write below its
// mount point. fs_test.go has readers of a daemon that root runs.

func init() { roles["rootless"] = rootless }

// inside keeps a folder of the filesystem open, and reads and writes below it until no daemon answers. It goes on even
// when the filesystem is no longer mounted.
func inside(folder int) {
	defer unix.Close(folder)
	for !errors.Is(reads(folder, "leases"), unix.ENOTCONN) {
		if fd, err := unix.Openat(folder, "jobs/1/memory.max", unix.O_WRONLY, 0); err == nil {
			_, _ = unix.Write(fd, []byte("512M\n"))
			_ = unix.Close(fd)
		}
	}
}

func reads(folder int, name string) error {
	fd, err := unix.Openat(folder, name, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Read(fd, make([]byte, 4096))
	return err
}

// rootless starts a daemon as an ordinary user, with a program that holds memory and readers inside its filesystem,
// stops the daemon and reports how it ended.
func rootless(a *attacker) error {
	home := os.Getenv("HOME")
	for {
		if _, ok := a.next(); !ok {
			return nil
		}
		said, err := stopWhileInside(home)
		if err != nil {
			return err
		}
		a.say("%s", said)
	}
}

// holds starts a program that holds 100 MiB of the daemon's device until it is killed.
func holds(home string) (*exec.Cmd, error) {
	built := filepath.Join(home, "..", "everybody")
	program := exec.Command(filepath.Join(built, "cudaprog-dlsym"))
	program.Env = append(os.Environ(), "GPUARB_SOCKET="+home+"/sock", "LD_PRELOAD="+filepath.Join(built, "libgpuarb.so"))
	in, err := program.StdinPipe()
	if err == nil {
		err = program.Start()
	}
	if err == nil {
		_, err = fmt.Fprintln(in, "alloc a 100M")
	}
	return program, err
}

// stopWhileInside starts a daemon, and stops it as soon as it has a lease and eight goroutines of this process are
// inside its filesystem.
func stopWhileInside(home string) (string, error) {
	var log bytes.Buffer
	mount := filepath.Join(home, "gpu")
	daemon := exec.Command(filepath.Join(home, "gpuarbd"), "--socket", home+"/sock", "--mount", mount, "--config", home+"/gpuarb.toml")
	daemon.Env, daemon.Stdout, daemon.Stderr = os.Environ(), &log, &log
	if err := daemon.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	shows := func(text string) {
		for leases := []byte(nil); !bytes.Contains(leases, []byte(text)) && len(ended) == 0; leases, _ = os.ReadFile(mount + "/leases") {
		}
	}
	shows("PID")
	program, err := holds(home)
	if err != nil {
		return "", err
	}
	defer func() { _ = program.Process.Kill(); _ = program.Wait() }()
	shows("104857600")
	var all sync.WaitGroup
	for range 8 {
		folder, err := unix.Open(mount, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		all.Go(func() { inside(folder) })
	}
	_ = daemon.Process.Signal(unix.SIGTERM)
	err = <-ended
	all.Wait()
	if at := bytes.Index(log.Bytes(), []byte("\n\n")); err != nil && at >= 0 { // Go's last message begins after a blank line
		log.Next(max(0, at-300))
	}
	if err != nil {
		return fmt.Sprintf("%v %.900q", err, log.String()), nil
	}
	return "ok", nil
}

// TestInsideAtTheEnd: a process inside the daemon's filesystem cannot keep the daemon from ending, however long the process stays there.
// The daemon runs as an ordinary user here, because only root could force the unmount.
func TestInsideAtTheEnd(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Stopped: true})
	m.OtherUser(65534)
	home := filepath.Join(m.Dir, "home")
	check(t, bounded.Command(t, rig.Patience, "install", "-d", "-o", "65534", home).Run())
	check(t, bounded.Command(t, rig.Patience, "install", "-m", "0755", rig.Build(t, "gpuarbd"), home+"/gpuarbd").Run())
	check(t, os.WriteFile(home+"/gpuarb.toml", []byte("schema_version = 1\n"), 0o644))
	p := start(m, "rootless", "env", "HOME="+home, "LD_LIBRARY_PATH="+filepath.Join(m.Dir, "everybody"), "unshare", "-m", "sh", "-ec", `
mknod "$HOME/fuse" c 10 229; chmod 666 "$HOME/fuse"; mount --bind "$HOME/fuse" /dev/fuse
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"`, "sh")
	for range 5 * *scale {
		say(t, p, "again", "ok")
	}
}
