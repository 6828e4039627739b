package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks that the daemon learns of each execve on the machine, of lost events, and that it cannot learn of
// them in a PID namespace or without the privilege. The tests start programs and wait for the kernel's events about
// them.

// TestWatchExecs checks that WatchExecs reports an exec in the machine's first PID namespace, and returns
// ErrUnavailable at once in any other.
func TestWatchExecs(t *testing.T) {
	if !inFirstNamespace(t) {
		if err := WatchExecs(t.Context(), func(int) {}, func() {}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("in a PID namespace of its own: %v, want %v", err, ErrUnavailable)
		}
		return
	}
	ignore := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan int, 1000)
	ended := make(chan error, 1)
	go func() { ended <- WatchExecs(ctx, func(pid int) { events <- pid }, func() {}) }()

	// The start of listening cannot be observed, so start programs until one is reported.
	deadline := time.After(bounded.Patience)
	for found := false; !found; {
		cmd := bounded.Command(t, bounded.Patience, "true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.ProcessState.Pid()
		pause := time.After(20 * time.Millisecond)
		for more := true; more && !found; {
			select {
			case e := <-events:
				found = e == pid
			case <-pause:
				more = false
			case err := <-ended:
				t.Fatalf("it ended: %v", err)
			case <-deadline:
				t.Fatal("no exec was seen")
			}
		}
	}
	cancel()
	if err := bounded.Receive(t, "Watch returns", ended); err != nil {
		t.Errorf("the end: %v", err)
	}
	if err := goleak.Find(ignore); err != nil {
		t.Error(err)
	}
}

// inFirstNamespace reports whether this process's PID namespace is the machine's first.
func inFirstNamespace(t *testing.T) bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return name == first
}

// TestWatchExecsInContainer runs TestWatchExecs in a PID namespace, where the kernel lets a process listen but sends
// no events.
func TestWatchExecsInContainer(t *testing.T) {
	cmd := bounded.Command(t, bounded.Patience, "unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run=^TestWatchExecs$")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWatchExecsUnprivileged runs WatchExecs as root of a user namespace and a network namespace of its own, without
// privileges on the machine. It must return ErrUnavailable, or end with its context, and no other error.
func TestWatchExecsUnprivileged(t *testing.T) {
	if os.Getenv("INVENTORY_TEST_WATCH") != "" {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := WatchExecs(ctx, func(int) {}, func() {}); err != nil && !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		return
	}
	cmd := bounded.Command(t, bounded.Patience, "unshare", "--user", "--net", "--map-root-user", os.Args[0], "-test.run=TestWatchExecsUnprivileged")
	cmd.Env = append(os.Environ(), "INVENTORY_TEST_WATCH=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWatchExecsOverrun: WatchExecs reports that events were dropped, although it cannot name them.
func TestWatchExecsOverrun(t *testing.T) {
	if !inFirstNamespace(t) {
		return // no events come here; TestWatchExecs checks the error for that
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held, release, lost := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	ended := make(chan error, 1)
	first := sync.OnceFunc(func() {
		close(held)
		<-release
	})
	go func() {
		ended <- WatchExecs(ctx, func(int) { first() }, func() {
			select {
			case lost <- struct{}{}:
			default:
			}
		})
	}()
	bounded.Receive(t, "it is busy with the first", held)
	// Make more events than the socket's buffer can hold.
	room, err := os.ReadFile("/proc/sys/net/core/rmem_default")
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := strconv.Atoi(strings.TrimSpace(string(room)))
	if err != nil {
		t.Fatal(err)
	}
	const least = 256 // bytes of the socket's buffer that one event takes at least
	busy := bounded.Command(t, bounded.Lifetime, "sh", "-c", fmt.Sprintf("i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done", bytes/least))
	if out, err := busy.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	close(release)
	bounded.Receive(t, "it says that some are lost", lost)
	cancel()
	if err := bounded.Receive(t, "Watch returns", ended); err != nil {
		t.Error(err)
	}
}
