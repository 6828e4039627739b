package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"golang.org/x/sys/unix"
)

// This file checks the wait of `gpuarb run` and `gpuarb claim` in the daemon's queue: the lines
// that are printed, the signals that end it, and a daemon that restarts or does not come back. It
// also checks that a signal first cancels the waiting requests of a program that already runs.
// run_test.go and claim_test.go have what follows the wait.

func notice(position uint32, text string) ipc.WaitingReply {
	return ipc.WaitingReply{Ticket: 5, Position: position, Waited: 2000, Text: ipc.MakeText(text)}
}

// callers matches the beginning of lines that name a job.
var callers = regexp.MustCompile(`(?m)^gpuarb: (.*\S) \(PID [0-9]+\): `)

// unaddressed returns the lines without the name of the job.
func unaddressed(lines string) string { return callers.ReplaceAllString(lines, "gpuarb: ") }

// TestWaitLines checks what a run prints if standard error is a pipe: one line when a wait begins, and one
// when it ends. Without a wait it prints nothing. tests/e2e/waitlines_test.go has the lines on a terminal.
func TestWaitLines(t *testing.T) {
	served := make(chan struct{})
	close(served)
	waits := startDaemon(t, func(d *fakeDaemon) {
		d.notices = []ipc.WaitingReply{notice(2, "waits, 2: held by 42"), notice(2, "waits, 2: held by 42"),
			notice(1, "waits, 1: held by 42"), notice(1, "waits, 1: held by 7 (evil\nname)"), notice(1, "")}
		d.serves, d.given = served, []ipc.JobDevice{cardB}
	})
	for _, args := range [][]string{{"run", "echo", "ran"}, {"claim", "--exec", "echo", "ran"}} {
		got := finish(t, gpuarb(t, waits.environment(t), args...))
		about := 0
		if args[0] == "run" { // a claim belongs to the shell
			about = strings.Count(got.stderr, "\n")
		}
		if n := strings.Count(callers.ReplaceAllString(got.stderr, "<$1>"), "<echo ran>"); n != about {
			t.Errorf("%d of %d lines say whom they are about", n, about)
		}
		got.stderr = unaddressed(got.stderr)
		want := "gpuarb: waits, 2: held by 42\n" +
			"gpuarb: served after 2s: GPU 1\n"
		if got.code != 0 || got.stdout != "ran\n" || got.stderr != want {
			t.Errorf("%q: code %d\n%v\nwant:\n%s", args, got.code, got, want)
		}
	}
}

// TestStillWaits checks the line that a wait prints once a minute: the time, and the latest state.
func TestStillWaits(t *testing.T) {
	begun := time.Now()
	for said, want := range map[string]string{
		"waits for 64 MiB on GPU 0: held by 7":                "after 3 min it still waits for 64 MiB on GPU 0: held by 7",
		"the daemon at /s is gone; waits for it to come back": "the daemon at /s is gone; waits for it to come back (it has waited 3 min)",
	} {
		w := waitReporter{app: &app{}, said: said, since: begun}
		if got := w.stillWaits(begun.Add(3*time.Minute + 20*time.Second)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// waitingRun starts a command whose job waits, and returns when the command says so.
func waitingRun(t *testing.T, args ...string) (*fakeDaemon, *running, *os.File) {
	t.Helper()
	daemon := startDaemon(t, func(d *fakeDaemon) {
		d.notices = []ipc.WaitingReply{notice(1, "waits for GPU 0")}
		d.serves = make(chan struct{})
	})
	command := gpuarb(t, daemon.environment(t), args...)
	stderr, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stderr.Close() })
	command.Stderr = theirs
	r := begin(t, command)
	theirs.Close()
	text := make([]byte, 200)
	n, err := stderr.Read(text)
	if err != nil || !strings.HasPrefix(unaddressed(string(text[:n])), "gpuarb: waits for GPU 0\n") {
		t.Fatalf("%v: %q", err, text[:n])
	}
	return daemon, r, stderr
}

// TestWaitInterrupted checks that a signal ends the wait: the request is given up, and the program
// does not start.
func TestWaitInterrupted(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "started")
	for name, args := range map[string][]string{
		"run": {"run", "touch", marker}, "claim --exec": {"claim", "--exec", "touch", marker}, "claim": {"claim", "--for", "1"},
	} {
		for sig, code := range map[unix.Signal]int{unix.SIGINT: 130, unix.SIGTERM: 143, unix.SIGHUP: 129} {
			daemon, r, stderr := waitingRun(t, args...)
			if err := r.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			await(t, name+": the request is given up", daemon.givenUp)
			rest, err := io.ReadAll(stderr)
			if want := "gpuarb: " + sig.String() + ": the place in the queue is given up\n"; err != nil || unaddressed(string(rest)) != want {
				t.Errorf("%s, %v: %v: %q, want %q", name, sig, err, rest, want)
			}
			if got := r.wait(t); got != code {
				t.Errorf("%s, %v: exit code %d, want %d", name, sig, got, code)
			}
			if _, err := os.Stat(marker); err == nil {
				t.Fatalf("%s, %v: the program was started", name, sig)
			}
		}
	}
}

// TestWaitGoesOn checks that signals for the program do not end the wait. Signals that would end
// the program are not sent, because a late one could reach the program.
func TestWaitGoesOn(t *testing.T) {
	daemon, r, _ := waitingRun(t, "run", "echo", "ran")
	for _, sig := range []unix.Signal{unix.SIGCONT, unix.SIGWINCH} {
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	close(daemon.serves)
	if got := r.line(t); got != "ran" {
		t.Errorf("it printed %q", got)
	}
	if code := r.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestSignalCancelsTickets checks that the tickets of a program are cancelled before the signal
// reaches it, because a thread that waits for memory could not handle it.
func TestSignalCancelsTickets(t *testing.T) {
	for name, sig := range map[string]unix.Signal{"INT": unix.SIGINT, "TERM": unix.SIGTERM, "HUP": unix.SIGHUP} {
		daemon := startDaemon(t, nil)
		script := "trap 'echo " + name + "; exit 0' " + name + "; echo ready; while :; do sleep 0.02; done"
		r := begin(t, gpuarb(t, daemon.environment(t), "run", "sh", "-c", script))
		r.line(t)
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := r.line(t); got != name {
			t.Errorf("the program got %q", got)
		}
		select {
		case request := <-daemon.cancels:
			if request != (ipc.CancelRequest{Job: testJob}) {
				t.Errorf("%s: asked for %+v", name, request)
			}
		default:
			t.Errorf("%s: the signal came before the Cancel", name)
		}
		r.wait(t)
	}
}

// TestWaitOverRestart checks that a waiting job asks again for its old place when the daemon
// restarts.
func TestWaitOverRestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	lost := true
	listener, err := ipc.Listen(socket, ipc.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	daemon := &fakeDaemon{socket: socket, ends: make(chan struct{}, 100), notices: []ipc.WaitingReply{notice(1, "waits for GPU 0")}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					m, err := conn.ReadMessage()
					if err != nil {
						return
					}
					if m.Header.Type == ipc.TypeJobOpen && lost {
						lost = false
						_ = conn.Notice(m.Header, &daemon.notices[0])
						return
					}
					if daemon.answer(conn, m, &parkedJob{}) != nil {
						return
					}
				}
			}()
		}
	}()
	got := finish(t, gpuarb(t, daemon.environment(t), "run", "echo", "ran"))
	if got.code != 0 || got.stdout != "ran\n" || strings.Count(got.stderr, "waits") != 1 {
		t.Errorf("code %d\n%v", got.code, got)
	}
	if job := daemon.lastJob(t); job.Flags != ipc.JobRetry {
		t.Errorf("it was asked again with flags %#x", job.Flags)
	}
}

// TestWaitDaemonGone checks the wait for a daemon that does not come back. The wait ends at its
// time limit, or when a signal comes.
func TestWaitDaemonGone(t *testing.T) {
	dies := func(d *fakeDaemon) {
		d.notices, d.dies = []ipc.WaitingReply{notice(1, "waits for GPU 0")}, true
	}
	for _, args := range [][]string{{"run", "--wait=0.001", "true"}, {"claim", "--wait=0.001", "--for", "1"}} {
		daemon := startDaemon(t, dies)
		got := finish(t, gpuarb(t, daemon.environment(t), args...))
		last := unaddressed(got.stderr[strings.LastIndex(strings.TrimSpace(got.stderr), "\n")+1:])
		if got.code != 124 || !strings.HasPrefix(last, "gpuarb: waited too long: no gpuarb daemon answers (tried "+daemon.socket+": ") ||
			!strings.HasSuffix(last, "); start gpuarbd, or name its socket with --socket or GPUARB_SOCKET\n") {
			t.Errorf("%q: code %d\n%v", args, got.code, got)
		}
	}
	for _, args := range [][]string{{"run", "true"}, {"claim", "--for", "1"}} {
		daemon := startDaemon(t, dies)
		command := gpuarb(t, daemon.environment(t), args...)
		stderr, theirs, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		command.Stderr = theirs
		r := begin(t, command)
		theirs.Close()
		lines := bufio.NewReader(stderr)
		for _, want := range []string{"waits for GPU 0", "the daemon at " + daemon.socket + " is gone; waits for it to come back"} {
			if got, err := lines.ReadString('\n'); unaddressed(got) != "gpuarb: "+want+"\n" {
				t.Errorf("%q: said %q, want %q: %v", args, got, want, err)
			}
		}
		if err := r.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := r.wait(t); code != 130 {
			t.Errorf("%q: exit code %d, want 130", args, code)
		}
	}
}

// TestExplainDaemonGone checks that a daemon that does not come back is reported like a daemon that
// never ran.
func TestExplainDaemonGone(t *testing.T) {
	none := &ipc.NoDaemonError{Tried: []ipc.Attempt{{Path: "/s", Err: unix.ECONNREFUSED}}}
	var exit *exitError
	if err := (&app{}).explainJob("/s", "", none); !errors.As(err, &exit) || exit.code != exitUnavailable ||
		err.Error() != "no gpuarb daemon answers (tried /s: connection refused); start gpuarbd, or name its socket with --socket or GPUARB_SOCKET" {
		t.Errorf("%v", err)
	}
}
