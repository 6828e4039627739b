package gpufs

import (
	"os"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"golang.org/x/sys/unix"
)

// This file checks that a daemon that is killed while it mounts ends at once, and leaves no process blocked.
// mount_test.go has mounts of daemons that died later.

// TestDaemonKilledDuringMount kills daemons as soon as the kernel lists their mount. A daemon that accesses its own
// mount would then wait for its own answer: it would never end, keep /dev/fuse open, and block every process that
// enters the folder.
func TestDaemonKilledDuringMount(t *testing.T) {
	for range 100 {
		path := t.TempDir()
		cmd := bounded.Command(t, bounded.Lifetime, os.Args[0])
		cmd.Env = append(os.Environ(), helperEnv+"="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		for m, err := mountedAt(path); m == nil; m, err = mountedAt(path) {
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-ended:
				t.Fatal("the daemon ended before it mounted")
			default:
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(patience):
			t.Errorf("killed, and not ended after %v", patience)
		}
		// Abort the connection, so that processes that wait for an answer get an error.
		if err := unix.Unmount(path, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		<-ended
		if t.Failed() {
			return
		}
	}
}
