package inventory

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// TestWatch checks that an exec is seen, or said at once that none ever will be.
func TestWatch(t *testing.T) {
	if !inFirstNamespace(t) {
		if err := Watch(t.Context(), func(int) {}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("in a PID namespace of its own: %v, want %v", err, ErrUnavailable)
		}
		return
	}
	ignore := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	events := make(chan int, 1000)
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, func(pid int) { events <- pid }) }()

	// Listening has no moment that can be seen, so programs are run until one is.
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

// inFirstNamespace says whether processes have the ids that the kernel gives them.
func inFirstNamespace(t *testing.T) bool {
	const first = "pid:[4026531836]" // PROC_PID_INIT_INO
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	return name == first
}

// TestWatchInContainer runs TestWatch where the kernel lets it listen, and sends nothing.
func TestWatchInContainer(t *testing.T) {
	cmd := bounded.Command(t, bounded.Patience, "unshare", "--pid", "--fork", "--mount-proc", os.Args[0], "-test.run=^TestWatch$")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestWatchUnprivileged checks that the lack of privilege is said at once, as what it is.
func TestWatchUnprivileged(t *testing.T) {
	if os.Getenv("INVENTORY_TEST_WATCH") != "" {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := Watch(ctx, func(int) {}); err != nil && !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		return
	}
	cmd := bounded.Command(t, bounded.Patience, "unshare", "--user", "--net", "--map-root-user", os.Args[0], "-test.run=TestWatchUnprivileged")
	cmd.Env = append(os.Environ(), "INVENTORY_TEST_WATCH=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
