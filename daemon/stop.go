package daemon

// This file stops the daemon, at any moment, also while it starts. cmd/gpuarbd calls Stop and Leave; start.go has the
// order of the parts.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
)

// stopPatience is how long Stop waits for everything that may hang: readers of the filesystem, a start that is not
// over, a request that reads /proc. With the time for the log, Stop takes less than two seconds.
const stopPatience = 1200 * time.Millisecond

// Stop ends the daemon, also while it starts. Clients keep what they hold, and the state file stays for the next
// daemon. Stop does not wait for a device that hangs.
func (d *Daemon) Stop() error { return d.stopOnce() }

// stop ends the parts. The users of the state end first. The locks that keep the next daemon from starting are
// released last.
func (d *Daemon) stop() error {
	late, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	d.cancel() // stopping is true from here on, and a recovery that holds the lock releases it soon
	d.lock()
	d.refuseParkedLocked()
	for l := range d.published {
		l.Hide() // no goroutine updates it any more
	}
	for c := range d.conns {
		c.Close()
	}
	d.unlock()
	d.notify("STOPPING=1")

	unmounted := background(func() (err error) {
		if d.fs != nil {
			err = d.fs.Unmount()
		}
		return err
	})
	quiet := background(func() (err error) {
		<-d.started
		if d.reaper != nil {
			err = d.reaper.Close()
		}
		d.wg.Wait()
		return err
	})
	// Unmount first: readers of the filesystem use the session pages.
	err := waitUntil(late, unmounted)
	if errors.Is(err, errLate) {
		err = errors.New("the filesystem does not let go: it ends with the daemon")
	}
	switch ended := waitUntil(late, quiet); {
	case errors.Is(ended, errLate):
	case d.filesystemBusy():
		err = errors.Join(err, ended)
	default:
		err = errors.Join(err, ended, d.closeState())
	}
	if d.file != nil {
		d.file.Unlock()
	}
	if d.listener != nil {
		err = errors.Join(err, d.listener.Close())
	}
	if d.inv != nil { // the driver may hang here too
		_ = waitUntil(late, background(func() error { d.inv.Close(); return nil }))
	}
	if d.ready.Load() { // after a failed start only the error is reported
		d.log.Info("stopped")
	}
	d.logs.Stop()
	return err
}

// refuseParkedLocked tells the clients of all waiting requests that the daemon stops. They ask the next daemon again,
// and keep their places. It is called after stopping has become true, so that no decision is sent afterwards. It
// bypasses the outgoing queues, because the connections are closed next.
func (d *Daemon) refuseParkedLocked() {
	gone := &ipc.ProtocolError{Status: ipc.StatusShuttingDown, Text: "the daemon is being stopped"}
	for _, p := range d.queue.parked {
		_ = p.cl.conn.ReplyError(p.head, gone)
	}
}

// filesystemBusy reports whether a process still uses the filesystem. A daemon without root cannot detach it, so that
// the data that such a process reads must stay mapped until this process ends.
func (d *Daemon) filesystemBusy() bool {
	if d.fs == nil {
		return false
	}
	select {
	case <-d.fs.Done():
		return false
	default:
		return true
	}
}

// closeState closes the descriptors and mappings of all sessions, and the state file. No goroutine uses them
// afterwards: a reader that returns from its device sees that the daemon is stopping.
func (d *Daemon) closeState() error {
	d.lock()
	defer d.unlock()
	for _, s := range d.sessions {
		d.release(s)
	}
	for _, j := range d.jobs {
		closeFD(j.anchor.pidfd)
	}
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}

// Leave closes the descriptors that other processes could wait for. It must be called only by a process that ends
// next.
//
// A thread that sleeps in a driver, where no signal reaches it, keeps the descriptors of its dead process open:
// sockets, pages, the filesystem's device. Descriptors that may themselves lead into a driver stay open.
func Leave() {
	fds, _ := filepath.Glob("/proc/self/fd/*") // only a bad pattern could fail
	for _, path := range fds {
		target, _ := os.Readlink(path)
		for _, ours := range []string{"socket:", "pipe:", "anon_inode:[pidfd]", "/memfd:", "/dev/fuse"} {
			if strings.HasPrefix(target, ours) {
				if fd, err := strconv.Atoi(filepath.Base(path)); err == nil {
					_ = unix.Close(fd)
				}
			}
		}
	}
}
