package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the daemon serves other devices, stops and is replaced while NVML does not answer for a device,
// even if a thread can no longer be killed. lost_test.go has devices that report an error.

// holder starts a program that takes bytes on a device.
func holder(m *rig.Machine, device int, bytes string) *rig.Program {
	m.T.Helper()
	p := m.Interact(m.Command(append(m.PreloadEnv(), fmt.Sprintf("CUDA_VISIBLE_DEVICES=%d", device)),
		rig.Build(m.T, "programs/cudaprog-dlsym")))
	p.Want("alloc a "+bytes, "ok")
	return p
}

// TestHungDevice: NVML does not answer for one device. All outputs name that device, the other device
// stays usable, and the daemon can restart meanwhile. When NVML answers again, the device is usable again.
func TestHungDevice(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "1G,1G"})
	stuck, other := holder(m, 0, "256M"), holder(m, 1, "512M")
	m.Sim("hang", "0")
	rig.Eventually(t, "the device is shown as unresponsive", func() bool { return m.Read("devices/0/state") == "unresponsive\n" })
	if state := m.Read("devices/1/state"); state != "ok\n" {
		t.Errorf("the other one is %s", state)
	}
	if got := rig.Run(t, m.Gpuarb("devices")); !strings.Contains(got.Stdout, "unresponsive") {
		t.Errorf("gpuarb devices:\n%s%s", got.Stdout, got.Stderr)
	}
	if got := rig.Run(t, m.Gpuarb("doctor")); !strings.Contains(got.Stdout+got.Stderr, "does not answer") {
		t.Errorf("gpuarb doctor:\n%s%s", got.Stdout, got.Stderr)
	}
	m.AwaitLog("GPU 0 has not answered for")

	other.Signal(unix.SIGKILL)
	other.Wait()
	rig.Eventually(t, "the dead program's bytes are free", func() bool { return len(m.Snapshot().Leases) == 1 })
	stuck.Want("alloc b 64M", "ok")
	m.Stop()
	m.Start()
	if used := m.Lease(stuck.PID(), 0).Used; used != 320<<20 {
		t.Errorf("after a restart beside a hung device it has %d", used)
	}
	stuck.Signal(unix.SIGKILL)
	stuck.Wait()
	m.Sim("answer", "0")
	rig.Eventually(t, "both devices are usable again", func() bool {
		return m.Read("devices/0/state") == "ok\n" && len(m.Snapshot().Leases) == 0
	})
	holder(m, 0, "900M")
}

// TestStopBeforeItIsReady: a daemon that gets SIGTERM while NVML hangs at its first call ends and removes its socket.
// The next daemon starts when NVML answers.
func TestStopBeforeItIsReady(t *testing.T) {
	m := rig.New(t, rig.Options{Stopped: true})
	m.Sim("hang", "init")
	started := make(chan error, 1)
	go func() { started <- m.TryStart() }()
	rig.Eventually(t, "the daemon has made its socket", func() bool { return exists(m.Socket) })
	m.Stop()
	if err := <-started; err == nil {
		t.Error("the program was ready before its wait ended")
	}
	if exists(m.Socket) {
		t.Error("its socket is still there")
	}
	m.Sim("answer", "init")
	m.Start()
}

// silentFile is a file whose reader hangs until the test releases it. Signals cannot interrupt the reader,
// because the kernel waits for the answer to a started filesystem request.
type silentFile struct {
	fs.Inode
	asked   chan struct{} // closed when a process reads the file
	once    sync.Once
	release chan struct{}
}

func (f *silentFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *silentFile) Read(_ context.Context, _ fs.FileHandle, _ []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	f.once.Do(func() { close(f.asked) })
	<-f.release
	return fuse.ReadResultData(nil), 0
}

// silence mounts a silentFile and makes NVML read it for a device.
func silence(m *rig.Machine, device int) *silentFile {
	m.T.Helper()
	dir := filepath.Join(m.Dir, "silent")
	if err := os.Mkdir(dir, 0o755); err != nil {
		m.T.Fatal(err)
	}
	file := &silentFile{asked: make(chan struct{}), release: make(chan struct{})}
	root := &fs.Inode{}
	server, err := fs.Mount(dir, root, &fs.Options{OnAdd: func(ctx context.Context) {
		root.AddChild("file", root.NewPersistentInode(ctx, file, fs.StableAttr{Mode: fuse.S_IFREG}), false)
	}})
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() {
		select {
		case <-file.release:
		default:
			close(file.release)
		}
		if err := server.Unmount(); err != nil {
			m.T.Error(err)
		}
	})
	if err := os.Symlink(filepath.Join(dir, "file"), filepath.Join(m.Dir, "sim", fmt.Sprintf("hang-%d", device))); err != nil {
		m.T.Fatal(err)
	}
	return file
}

// TestStopBesideAThreadThatCannotDie: a thread sleeps in the driver, and no signal can reach it.
// The daemon's process cannot end, but the next daemon can take its place.
func TestStopBesideAThreadThatCannotDie(t *testing.T) {
	m := rig.New(t, rig.Options{Devices: "1G,1G"})
	p := holder(m, 1, "256M")
	inside, err := os.Open(filepath.Join(m.Mount, "leases"))
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	file := silence(m, 0)
	<-file.asked
	old := m.DaemonPID()
	if err := unix.Kill(old, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the daemon's socket is gone", func() bool { return !exists(m.Socket) })
	rig.Eventually(t, "the daemon's mount is gone", func() bool {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		return err == nil && !strings.Contains(string(mounts), " "+m.Mount+" ")
	})
	rig.Eventually(t, "the daemon's process is ending", func() bool { return stateOf(old) == 'Z' || threadsOf(old) == 1 }) // the thread that cannot die may be the first one
	if _, err := inside.ReadAt(make([]byte, 1), 0); err == nil {
		t.Error("the filesystem of the ended daemon can still be read")
	}
	if err := os.Remove(filepath.Join(m.Dir, "sim", "hang-0")); err != nil {
		t.Fatal(err)
	}
	m.Start()
	if stateOf(old) == 'Z' && threadsOf(old) < 2 || threadsOf(old) == 0 {
		t.Error("no thread of the old daemon is left to prove anything")
	}
	if used := m.Lease(p.PID(), 1).Used; used != 256<<20 {
		t.Errorf("the next daemon knows of %d bytes", used)
	}
	p.Want("alloc b 64M", "ok")
	if _, err := ipc.Dial(t.Context(), m.Socket); err != nil {
		t.Error(err)
	}
	close(file.release)
	rig.Eventually(t, "the old daemon has ended", func() bool { return stateOf(old) == 0 })
}

// threadsOf returns the number of a process's threads, including a first thread that died before the others.
func threadsOf(pid int) int {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return len(threads)
}

// stateOf returns the state of a process, such as 'R' or 'Z'; 0: the process does not exist.
func stateOf(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return after[0]
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
