package attack

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that readers of /gpu, stopped or stuck or many, delay neither programs nor the end of the daemon,
// and see the true state. fs_end_test.go has a daemon that may not force its unmount.

// readers read a machine's whole filesystem in several ways until stop is called. rounds counts
// complete reads.
func readers(t *testing.T, m *rig.Machine) (rounds *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	rounds = &atomic.Int64{}
	var wg sync.WaitGroup
	for _, c := range [][]string{
		{"grep", "-rs", "nothing like this", m.Mount},
		{"find", m.Mount, "-type", "f", "-newer", "/proc/self"},
		{"cat", filepath.Join(m.Mount, "leases"), filepath.Join(m.Mount, "stats"), filepath.Join(m.Mount, "leases.json")},
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = m.Command(m.Env(), c[0], c[1:]...).Run()
				rounds.Add(1)
			}
		})
	}
	return rounds, func() { cancel(); wg.Wait() }
}

// stuck opens a file, reads one byte and keeps the file open, as a pager does.
func stuck(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.Read(make([]byte, 1))
	check(t, err)
	return f
}

// TestReadersUnderLoad: readers of any kind cost programs only time, and each reader
// sees the true state.
func TestReadersUnderLoad(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	rounds, stop := readers(t, m)
	crowd := []*rig.Program{cudaprog(m), cudaprog(m), cudaprog(m)}
	held := stuck(t, filepath.Join(m.Mount, "leases"))
	for i := range 5 * *scale {
		for j, p := range crowd {
			p.Tell(fmt.Sprintf("threads 3 100 200M %d", 10*i+j+1))
		}
		for _, p := range crowd {
			p.Line()
		}
		agree(t, m)
	}
	say(t, crowd[0], "alloc a 123M", "ok")
	if text := m.Read("leases"); !strings.Contains(text, fmt.Sprint(123<<20)) {
		t.Errorf("leases: %s", text)
	}
	rest, err := io.ReadAll(held)
	if err != nil || !strings.Contains(string(rest), "USER GPU") || strings.Contains(string(rest), fmt.Sprint(123<<20)) {
		t.Errorf("the child does not continue its parent's session: %v, %q", err, rest)
	}
	rig.Eventually(t, "the readers come through", func() bool { return rounds.Load() > 10 })
	stop()
}

// TestDaemonKilledUnderReaders: a reader inside the filesystem gets an error and does not hang, and
// the next daemon mounts again.
func TestDaemonKilledUnderReaders(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	_, stop := readers(t, m)
	for range 4 * *scale {
		held := stuck(t, filepath.Join(m.Mount, "stats"))
		m.Kill()
		if _, err := held.Seek(0, io.SeekStart); err == nil {
			if _, err := bufio.NewReader(held).ReadString('\n'); err == nil {
				t.Error("a dead daemon's file was read")
			}
		}
		m.Start()
		if text := m.Read("leases"); !strings.Contains(text, fmt.Sprint(100<<20)) {
			t.Errorf("leases: %s", text)
		}
		agree(t, m)
	}
	stop()
}

// TestUnmountedBySomebody: when the filesystem is unmounted by hand, the socket keeps working, the log reports it, and the daemon can still be stopped.
func TestUnmountedBySomebody(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G"})
	p := cudaprog(m)
	say(t, p, "alloc a 100M", "ok")
	_, stop := readers(t, m)
	held := stuck(t, filepath.Join(m.Mount, "leases"))
	check(t, unix.Unmount(m.Mount, unix.MNT_DETACH))
	check(t, held.Close())
	stop()
	m.AwaitLog("unmounted by somebody")
	say(t, p, "alloc b 100M", "ok")
	agree(t, m)
	m.Stop()
	m.Start()
	say(t, p, "alloc c 100M", "ok")
	agree(t, m)
	m.Read("leases")
}

// TestStoppedReader: a reader that is stopped in the middle of a read delays no other reader, and
// does not delay the end of the daemon.
func TestStoppedReader(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G"})
	p := cudaprog(m)
	reader := m.Command(m.Env(), "sh", "-c", "while :; do cat "+filepath.Join(m.Mount, "leases")+" >/dev/null; done")
	check(t, reader.Start())
	for i := range 10 {
		check(t, syscall.Kill(-reader.Process.Pid, syscall.SIGSTOP))
		say(t, p, fmt.Sprintf("alloc a%d 10M", i), "ok")
		agree(t, m)
		check(t, syscall.Kill(-reader.Process.Pid, syscall.SIGCONT))
	}
	check(t, syscall.Kill(-reader.Process.Pid, syscall.SIGSTOP))
	m.Stop()
	check(t, syscall.Kill(-reader.Process.Pid, syscall.SIGKILL))
	_ = rig.Wait(t, rig.Patience, reader)
	m.Start()
	say(t, p, "alloc b 10M", "ok")
	agree(t, m)
}
