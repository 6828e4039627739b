package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that programs which fork, spawn, exec or daemonize are charged for their own memory only, and
// whose memory it is when a parent dies before its child. threads_test.go has the ways to end.

// TestFork: a program forks while its threads are in driver calls. Its children do not hang, and change no count
// of their parent.
func TestFork(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"libc", "raw"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := same(t, story(t, []string{"fork", how}))
			if n := m.Snapshot().Stats.ClampedWords; n != 0 {
				t.Errorf("%d credit words were clamped", n)
			}
		})
	}
}

// TestSpawn: programs that are started by vfork and posix_spawn have leases of their own.
func TestSpawn(t *testing.T) {
	t.Parallel()
	same(t, story(t, []string{"spawn"}))
}

// TestExec: a program replaces itself by exec while its threads are in driver calls. The new program neither has
// the old program's memory nor is charged for it.
func TestExec(t *testing.T) {
	t.Parallel()
	m := machine(t)
	words := story(t, []string{"exec"})
	got := tell(m, m.PreloadEnv(), words, func(at string, _ *rig.Program) {
		if at == "another program" {
			rig.Eventually(t, "the old lease is gone", func() bool { return len(m.Snapshot().Leases) == 1 })
		}
		agree(m, at)
	})
	compare(t, got, bare(t, words))
	allGone(m)
}

// TestDaemon: a program that daemonizes, closing all descriptors twice, is served like any other.
func TestDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t)
	for name, env := range map[string][]string{"bare": m.Env(), "shim": m.PreloadEnv()} {
		folder := filepath.Join(m.Dir, name)
		check(t, os.Mkdir(folder, 0o700))
		words := story(t, []string{"daemon", folder})
		if r := rig.Run(t, m.Command(env, words[0], words[1:]...)); r.Code != 0 || r.Stderr != "" {
			t.Fatalf("%s: exit status %d, %s", name, r.Code, r.Stderr)
		}
		rig.Eventually(t, "the program holds 5 MiB", func() bool { return m.SimNumber("total") == 5<<20 })
		if name == "shim" {
			agree(m, "before the daemon is asked")
		}
		check(t, os.WriteFile(filepath.Join(folder, "take"), nil, 0o600))
		rig.Eventually(t, "the program has allocated more", func() bool { return exists(filepath.Join(folder, "taken")) })
		if name == "shim" {
			agree(m, "after a large allocation")
		}
		check(t, os.WriteFile(filepath.Join(folder, "end"), nil, 0o600))
		rig.Eventually(t, "the program has ended", func() bool { return exists(filepath.Join(folder, "result")) })
		text, err := os.ReadFile(filepath.Join(folder, "result"))
		check(t, err)
		// The program gets the lowest descriptors, because the shim's own descriptors have high numbers.
		if got := string(text); !strings.HasPrefix(got, "0 0 0 descriptor ") || name == "shim" && got != "0 0 0 descriptor 0\n" {
			t.Errorf("%s: %q", name, got)
		}
		rig.Eventually(t, "its memory is free again", func() bool { return m.SimNumber("total") == 0 })
	}
	allGone(m)
}

// TestHeirs: a program and its child are dead, and the grandchild has the device still open.
// Their memory counts as unmanaged usage under the grandchild's name, until the grandchild ends.
func TestHeirs(t *testing.T) {
	t.Parallel()
	m := machine(t)
	words := story(t, []string{"heirs"})
	p := m.Begin(m.Command(m.PreloadEnv(), words[0], words[1:]...))
	if line := p.Line(); line != "alloc 0" {
		t.Fatal(line)
	}
	heir := strings.TrimPrefix(p.Line(), "heir ")
	if line := p.Line(); line != "at the heir is there" {
		t.Fatal(line)
	}
	agree(m, "the heir is there")
	check(t, unix.Kill(m.Snapshot().Leases[0].PID, unix.SIGKILL))
	rig.Eventually(t, "the memory counts as unmanaged", func() bool {
		d := m.Snapshot().Devices[0]
		return d.Granted == 0 && d.Unmanaged == 500<<20
	})
	s := m.Snapshot()
	if by := s.Devices[0].UnmanagedBy; len(by) != 1 || !strings.Contains(by[0].Command, "["+heir+"]") {
		t.Errorf("unmanaged by %+v, want the heir, %s", by, heir)
	}
	m.AwaitLog("[" + heir + "] keeps its 500 MiB")
	q := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	q.Want(fmt.Sprintf("alloc a %d", 2<<30-500<<20+1), "err 2")
	q.Want(fmt.Sprintf("alloc a %d", 2<<30-500<<20), "ok")
	q.Want("free a", "ok")
	p.CloseStdin() // the grandchild waits for that
	rig.Eventually(t, "the memory is back", func() bool { return m.Snapshot().Devices[0].Unmanaged == 0 })
	q.Want("alloc a 2G", "ok")
	q.End()
	allGone(m)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
