package daemon

// This file ends the daemon, at any moment, also while it starts.

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

// stopPatience is how long Stop waits for all that may hang: whoever reads the filesystem,
// a start that is not over, a request that reads /proc. With what is logged it stays below
// two seconds.
const stopPatience = 1200 * time.Millisecond

// Stop ends the daemon in good order, also while it starts. Clients go on with what they
// hold; the state file stays for the next daemon. A device that hangs, it does not wait for.
func (d *Daemon) Stop() error { return d.stopOnce() }

// stop takes down what is up: first what uses the state, then what tells the next daemon
// that it may come.
func (d *Daemon) stop() error {
	late, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	d.cancel() // from here on stopping says so, and a start that takes up what is left gives the lock back soon
	d.lock()
	d.refuseParkedLocked()
	for l := range d.published {
		l.Hide() // nobody keeps it true
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
	// Whoever still reads the filesystem reads the pages.
	err := inTime(late, unmounted)
	if errors.Is(err, errLate) {
		err = errors.New("the filesystem does not let go: it ends with the daemon")
	}
	switch ended := inTime(late, quiet); {
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
	if d.inv != nil { // the driver may hang in this, too
		_ = inTime(late, background(func() error { d.inv.Close(); return nil }))
	}
	if d.ready.Load() { // else what it failed for is all that there is to say
		d.log.Info("stopped")
	}
	d.logs.Stop()
	return err
}

// refuseParkedLocked tells the clients of all waiting requests that the daemon stops. They ask the next daemon again, and keep their places. It
// is called after stopping has become true, so that no decision is sent any more. It does not use the queues, because the connections are
// closed next.
func (d *Daemon) refuseParkedLocked() {
	gone := &ipc.ProtocolError{Status: ipc.StatusShuttingDown, Text: "the daemon is being stopped"}
	for _, p := range d.queue.parked {
		_ = p.cl.conn.ReplyError(p.head, gone)
	}
}

// filesystemBusy reports whether somebody still uses the filesystem. A daemon without root cannot throw him out, so what he
// reads stays mapped until this process ends.
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

// closeState gives back the descriptors and mappings of all sessions, and the state file.
// Nobody uses them any more: a reader that comes back from its device sees that all is over.
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

// Leave closes what others could wait for, and is for a process that ends now. A thread that
// sleeps in a driver, where no signal reaches it, keeps the descriptors of its process open
// after all else of it has died: sockets, pages, the filesystem's own. What may itself lead
// into a driver stays.
func Leave() {
	fds, _ := filepath.Glob("/proc/self/fd/*") // of which the pattern alone could be wrong
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
