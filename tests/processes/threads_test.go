package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file shows that calls return and counts stay right when threads or the process end, when signals arrive,
// and when the daemon is stopped for a while. births_test.go has processes that make other processes.

// TestThreadsDie: memory of dead threads belongs to their process, which can free it.
func TestThreadsDie(t *testing.T) {
	t.Parallel()
	same(t, story(t, []string{"die"}))
}

// TestThreadVanishes: a thread ends in the middle of a driver call. Only the memory of that call stays charged,
// as long as the process lives.
func TestThreadVanishes(t *testing.T) {
	t.Parallel()
	const slow = "SIMCUDA_ALLOC_DELAY_US=100ms"
	words := story(t, []string{"vanish"})
	m := machine(t, slow)
	got := tell(m, m.PreloadEnv(), words, func(string, *rig.Program) {
		held, l := m.Held(), m.Snapshot().Leases
		if len(held) != 1 || len(l) != 1 {
			t.Fatalf("held %+v, leases %+v", held, l)
		}
		if more := int64(l[0].Used) - int64(held[0].Bytes); more != 0 && more != 20<<20 {
			t.Errorf("the driver counts %d bytes, the daemon %d: want the same, or the one request more", held[0].Bytes, l[0].Used)
		}
	})
	compare(t, got, bare(t, words, slow))
	allGone(m)
}

// TestThreadVanishesInATurn: a thread ends while it makes the primary context. The next thread does not
// wait for it.
func TestThreadVanishesInATurn(t *testing.T) {
	t.Parallel()
	m := machine(t)
	env := append(m.PreloadEnv(), "GPUARB_LOG=stderr")
	words := story(t, []string{"turn"})
	p := m.Begin(m.Command(env, words[0], words[1:]...))
	for line := ""; line != "end"; {
		line = p.Line()
		switch line {
		case "at the driver is slow from here on":
			m.Sim("fail", "cuDevicePrimaryCtxRetain:1:delay=3600s")
		case "at it is in the driver":
			rig.Eventually(t, "the thread is in the driver's call", func() bool { return strings.Contains(m.Sim("faults"), "hits=1") })
		case "at it is gone":
			m.Sim("clear")
		default:
			if strings.HasPrefix(line, "retain ") && line != "retain 0" || strings.HasPrefix(line, "release ") && line != "release 0" {
				t.Error(line)
			}
		}
		if strings.HasPrefix(line, "at ") {
			p.Tell("go on")
		}
	}
	if said := p.End(); strings.Contains(said, "busy") {
		t.Errorf("the thread waited for a thread that has ended: %s", said)
	}
	allGone(m)
}

// TestKeys: a program has used up all pthread keys of its process.
func TestKeys(t *testing.T) {
	t.Parallel()
	same(t, story(t, []string{"keys"}))
}

// TestEnvironmentChanges makes one thread change the environment while requests of another thread are refused. Each
// refusal writes a message, and must not read the environment for that.
func TestEnvironmentChanges(t *testing.T) {
	t.Parallel()
	same(t, story(t, []string{"environ"}))
}

// TestStoppedDaemon checks that a stopped daemon counts as gone after five seconds: from then on no call waits for it,
// and the user is told why there is no limit. A request that waits in the daemon's queue goes on waiting. When the
// daemon continues, it learns of all memory.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "2G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"10m\"\n"})
	words := story(t, []string{"stopped"})
	p := m.Begin(m.Command(m.PreloadEnv(), words[0], words[1:]...))
	p.Expect("0 not allocated")
	p.Expect("at the daemon stops")
	waiter := m.Interact(m.Command(m.PreloadEnv(), rig.Build(t, "programs/cudaprog-dlsym")))
	waiter.Tell("alloc a 1500M")
	rig.Eventually(t, "a request waits", func() bool { return len(m.Snapshot().Queue) == 1 })
	stop(t, m.DaemonPID())
	p.Tell("go on")
	for _, line := range []string{"alloc 0", "after five seconds or so", "0 not freed", "frees: no call waits",
		"another thread: no call waits", "at the daemon goes on"} {
		p.Expect(line)
	}
	said := p.Stderr()
	if strings.Count(said, "the daemon does not answer") != 1 || !strings.Contains(said, "running without any GPU memory limit") {
		t.Errorf("it says %q", said)
	}
	if !waiter.Silent() {
		t.Errorf("the waiting program got an answer: %s", waiter.Line())
	}
	check(t, unix.Kill(m.DaemonPID(), unix.SIGCONT))
	p.Tell("go on")
	p.Expect("alloc 0")
	p.Expect("at it has answered")
	waiter.Expect("alloc a ok")
	rig.Eventually(t, "the daemon knows of all memory", func() bool { return m.Disagreement() == "" })
	p.Tell("go on")
	p.Expect("end")
	p.End()
	waiter.End()
	allGone(m)
}

// TestStartedBesideAStoppedDaemon checks two programs that start beside a stopped daemon. A program whose first request is
// answered within five seconds has its limit. The other program runs without a limit after five seconds and not earlier, and
// says so.
func TestStartedBesideAStoppedDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t)
	begin := func() *rig.Program {
		return m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_MEMORY=1G"), rig.Build(t, "programs/cudaprog-dlsym")))
	}
	late, never := begin(), begin()
	pid := late.PID()
	stop(t, m.DaemonPID())
	late.Tell("alloc a 1100M")
	rig.Eventually(t, "the program waits for the daemon", func() bool {
		return strings.HasPrefix(of(t, pid, "syscall"), strconv.Itoa(unix.SYS_PPOLL)+" ")
	})
	check(t, unix.Kill(m.DaemonPID(), unix.SIGCONT))
	late.Expect("alloc a err 2")
	if said := late.Stderr(); strings.Contains(said, "daemon") {
		t.Errorf("it had its answer in time, and says %q", said)
	}
	stop(t, m.DaemonPID())
	began := time.Now()
	never.Want("alloc a 64M", "ok")
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("without a limit after %v", took)
	}
	rig.Eventually(t, "the program says that it has no limit", func() bool { // stderr is read beside stdout, so its line may come later
		return strings.Contains(never.Stderr(), "the daemon does not answer: running without any GPU memory limit")
	})
	check(t, unix.Kill(m.DaemonPID(), unix.SIGCONT))
	rig.Eventually(t, "the daemon knows of it", func() bool {
		never.Want("alloc b 1M", "ok")
		never.Want("free b", "ok")
		return len(m.Snapshot().Leases) == 2
	})
	never.Want("alloc b 1G", "err 2")
	late.End()
	never.End()
	allGone(m)
}

// TestSignalInACall: a signal handler that allocates interrupts its thread while the thread
// waits for a stopped daemon: for the answer to a request, or for a new
// daemon to resume its session.
func TestSignalInACall(t *testing.T) {
	t.Parallel()
	words := story(t, []string{"signal"})
	want := func() []string {
		m := machine(t)
		return tell(m, m.Env(), words, func(at string, _ *rig.Program) {
			if at == "a signal comes" {
				check(t, unix.Kill(m.Held()[0].PID, unix.SIGUSR1))
			}
		})
	}()
	for _, what := range []string{"a request", "a new daemon"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			pid := 0
			p := m.Begin(m.Command(m.PreloadEnv(), words[0], words[1:]...))
			var got []string
			for line := ""; line != "end"; {
				line = p.Line()
				got = append(got, line)
				switch line {
				case "at a signal comes":
					pid = m.Held()[0].PID
					if what == "a new daemon" {
						m.Kill()
						m.Start()
					}
					stop(t, m.DaemonPID())
					p.Tell("go on")
					interrupt(t, pid)
					check(t, unix.Kill(m.DaemonPID(), unix.SIGCONT))
				case "at after the signal":
					agree(m, line)
					p.Tell("go on")
				}
			}
			p.End()
			compare(t, got, want)
			allGone(m)
		})
	}
}

// stop stops all threads of a process.
func stop(t *testing.T, pid int) {
	t.Helper()
	check(t, unix.Kill(pid, unix.SIGSTOP))
	rig.Eventually(t, "all its threads stand still", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		check(t, err)
		return len(tasks) > 0 && !slices.ContainsFunc(tasks, func(task string) bool {
			text, err := os.ReadFile(task)
			return err == nil && !strings.Contains(string(text), ") T ")
		})
	})
}

// interrupt sends a signal to a thread that waits at a socket, and returns when the signal
// handler runs.
func interrupt(t *testing.T, pid int) {
	t.Helper()
	rig.Eventually(t, "the program waits for the daemon", func() bool {
		return strings.HasPrefix(of(t, pid, "syscall"), strconv.Itoa(unix.SYS_PPOLL)+" ")
	})
	check(t, unix.Kill(pid, unix.SIGUSR1))
	rig.Eventually(t, "the signal is delivered", func() bool {
		return strings.Contains(of(t, pid, "status"), "\nShdPnd:\t0000000000000000\n")
	})
}

func of(t *testing.T, pid int, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), file))
	check(t, err)
	return string(text)
}

// TestSignals: no call fails because of signals that arrive during it.
func TestSignals(t *testing.T) {
	t.Parallel()
	same(t, story(t, []string{"timer"}))
}

// TestEnds: a process ends in any way, with threads in calls and pending
// work. It ends as without the shim, and leaves nothing behind.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"exit", "return", "_exit", "quick_exit", "abort", "main"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := machine(t)
			words := story(t, []string{"exit", how})
			want := rig.Run(t, m.Command(m.Env(), words[0], words[1:]...))
			for range 5 {
				if got := rig.Run(t, m.Command(m.PreloadEnv(), words[0], words[1:]...)); got != want {
					t.Errorf("under the shim %+v, without %+v", got, want)
				}
			}
			if code := map[string]int{"abort": -1, "main": 8}[how]; want.Code != code && want.Code != 5 {
				t.Errorf("without the shim: %+v", want)
			}
			allGone(m)
		})
	}
}

// TestOutlived: a program goes on when its first thread has ended. It keeps its limit and its name, whether it first used the GPU
// before that or afterwards, and over a restart of the daemon.
func TestOutlived(t *testing.T) {
	t.Parallel()
	for _, begins := range []string{"before", "afterwards"} {
		t.Run(begins, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "2G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
				Config: "schema_version = 1\n[defaults]\nmemory.max = \"100M\"\n"})
			words := story(t, []string{"outlived", begins})
			got := tell(m, m.PreloadEnv(), words, func(at string, _ *rig.Program) {
				agree(m, at)
				m.Kill()
				m.Start()
				agree(m, at+", with the next daemon")
				processes := m.Snapshot().Processes
				if at == "allocated" && (len(processes) != 1 || processes[0].Command != strings.Join(words, " ")) {
					t.Errorf("there are %+v, want %q", processes, words)
				}
			})
			want := []string{"at first thread ended", "alloc 0", "at allocated", "more 2", "free 0", "at freed", "end"}
			compare(t, got, want)
			allGone(m)
		})
	}
}

// TestNeededOfTheFirst: a process can release the slot of its first thread after that thread has ended, while other threads go on.
func TestNeededOfTheFirst(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "2G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"10m\"\ndeadlock_grace = \"10m\"\nslots.max = 2\nslots.scope = \"thread\"\n"})
	got := tell(m, m.PreloadEnv(), story(t, []string{"needed"}), func(at string, _ *rig.Program) {
		if n := len(m.Snapshot().Queue); at == "the first thread has ended" && n != 0 {
			t.Errorf("%d requests wait", n)
		}
	})
	compare(t, got, []string{"use 0", "alloc 0", "at the first thread is in it", "use 0", "alloc 0", "at the first thread has ended", "free 0", "end"})
}

// TestAtExit: memory is freed by an atexit handler and by a library's destructor, after
// all other code has ended.
func TestAtExit(t *testing.T) {
	t.Parallel()
	m := machine(t)
	words := story(t, []string{"atexit"})
	want := rig.Run(t, m.Command(m.Env(), words[0], words[1:]...))
	got := rig.Run(t, m.Command(m.PreloadEnv(), words[0], words[1:]...))
	if got != want || want.Code != 6 || !strings.Contains(want.Stdout, "in an atexit handler") {
		t.Errorf("under the shim %+v, without %+v", got, want)
	}
	allGone(m)
}
