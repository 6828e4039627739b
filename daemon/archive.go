package daemon

// This file starts the process that keeps the history, and feeds it with the accounts of jobs. loops.go runs it. Package
// archive is the process, and archive/rows defines the lines. feed.go holds rows until they are written, and archiverows.go makes them.
//
// No request waits for the process: rows wait in the feed, which has a lock of its own. Only ended jobs have rows in the feed. The rows
// of running jobs are made for each batch.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/worker"
)

const (
	// archiveUser is the user that systemd-sysusers creates for the process. If it does not exist, the process runs under archiveUID, which
	// no package uses. It must not be the user nobody, because the page's process then runs as nobody, and must not read the history.
	archiveUser = "gpuarb-history"
	archiveUID  = 65533
	// feedEvery is the time between two batches. After a crash, what is lost is thus at most a second old.
	feedEvery = 900 * time.Millisecond
	// lookEvery is the time between two looks at the credit words of up to 200 leases. The time of a free that sends no message is thus wrong
	// by at most half of it.
	lookEvery = 20 * time.Millisecond
	// restartPause is the pause before the first restart of the process. If the daemon died during the pause, unwritten rows would be lost.
	restartPause = 20 * time.Millisecond
	// settleAfter is the time that jobs of an earlier daemon have to come back after the start. The others then count as ended.
	settleAfter = 15 * time.Second
)

// newArchive makes the worker.Keeper that starts and watches the history's process.
func (d *Daemon) newArchive() *worker.Keeper {
	var out bytes.Buffer // the begun line of the process's output
	return worker.New(d.log, d.paths.socket, d.paths.socketMode(), worker.Job{
		Command: rows.Command, User: archiveUser, Fallback: archiveUID, Drains: true, Spare: true, LogsOnce: true, Pause: restartPause,
		Done: "the history is kept", Failed: "the history is not kept",
		Prepare: func(as *syscall.Credential) error { return prepareFolder(d.paths.history, as) },
		Started: d.feed.connect, Ended: d.feed.disconnect, Trouble: d.feed.failed,
		Heard: func(output []byte) (serves bool) {
			out.Write(output)
			for {
				line, rest, found := bytes.Cut(out.Bytes(), []byte{'\n'})
				if !found {
					break
				}
				var answer rows.Answer
				if json.Unmarshal(line, &answer) == nil {
					d.archiveAnswered(answer)
					serves = serves || answer.Error == ""
				}
				out.Next(len(out.Bytes()) - len(rest))
			}
			return serves
		},
	})
}

// wantedArchive returns the socket and the settings of the history's process for a configuration. The zero value means no process.
func (d *Daemon) wantedArchive(c *config.Config) worker.Wanted {
	if c.History.Kept == config.HistoryNone {
		return worker.Wanted{}
	}
	settings, err := json.Marshal(rows.Settings{Folder: d.paths.history, MaxBytes: int64(c.History.Size), MaxAgeMs: c.History.Age.Milliseconds(),
		Owner: uint32(os.Geteuid()), Daemon: strconv.FormatUint(d.history.ID, 36)})
	if err != nil {
		return worker.Wanted{}
	}
	return worker.Wanted{Network: "unix", Address: rows.SocketOf(d.paths.socket), Settings: string(settings)}
}

// archiveAnswered handles a line of the history's process.
func (d *Daemon) archiveAnswered(a rows.Answer) {
	if a.Note != "" {
		d.log.Warn("the history begins anew", "reason", a.Note)
	}
	if text, changed := d.feed.answered(a); changed {
		if text != "" {
			d.log.Warn("the history cannot be written; it is tried again", "folder", d.paths.history, "err", text)
		} else {
			d.log.Info("the history is written again", "folder", d.paths.history)
		}
	}
}

// prepareFolder makes the folder of the history, and gives the folder and its files to the user of the history's process. They may belong to
// another user if that user did not exist before. as is nil if the process runs as the daemon's own user.
func prepareFolder(folder string, as *syscall.Credential) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if as == nil {
		return nil
	}
	if at := closedTo(filepath.Dir(folder), as); at != "" {
		return fmt.Errorf("the user of its process (%s, or %d without that user) may not enter %s: open it to others (chmod o+x), or set STATE_DIRECTORY", archiveUser, archiveUID, at)
	}
	at, err := unix.Open(folder, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", folder, err)
	}
	defer unix.Close(at)
	var stat unix.Stat_t
	if err := unix.Fstat(at, &stat); err != nil || stat.Uid == as.Uid {
		return err
	}
	for _, name := range []string{rows.FileName, rows.FileName + "-wal", rows.FileName + "-shm", "lock"} {
		if err := chownFile(at, name, as); err != nil {
			return fmt.Errorf("%s/%s: %w", folder, name, err)
		}
	}
	if err := unix.Fchown(at, int(as.Uid), int(as.Gid)); err != nil {
		return fmt.Errorf("%s cannot be given to user %d: %w", folder, as.Uid, err)
	}
	return nil
}

// closedTo returns the folder nearest to the root, on the way to a path, whose mode does not let a user enter; "": none.
func closedTo(path string, as *syscall.Credential) string {
	closed := ""
	for at := path; ; at = filepath.Dir(at) {
		var stat unix.Stat_t
		if unix.Stat(at, &stat) == nil {
			mode := stat.Mode
			switch {
			case stat.Uid == as.Uid:
				mode >>= 6
			case stat.Gid == as.Gid:
				mode >>= 3
			}
			if mode&1 == 0 {
				closed = at
			}
		}
		if at == filepath.Dir(at) {
			return closed
		}
	}
}

// chownFile gives a file in a folder to a user, if it is a regular file without further hard links. A file that does not exist is ignored.
func chownFile(folder int, name string, as *syscall.Credential) error {
	file, err := unix.Openat(folder, name, unix.O_NOFOLLOW|unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(file)
	var stat unix.Stat_t
	if err := unix.Fstat(file, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 1 {
		return err
	}
	return unix.Fchown(file, int(as.Uid), int(as.Gid))
}

// keepArchive runs the history's process and sends it the accounts of jobs until ctx ends. It then sends the last batch, and ends the process.
func (d *Daemon) keepArchive(ctx context.Context) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer d.catchPanic(nil)
		defer close(ended)
		d.archive.Run(own)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	next, settle, look := time.NewTimer(feedEvery), time.After(settleAfter), time.NewTimer(feedEvery)
	defer next.Stop()
	defer look.Stop()
	for over := false; !over; {
		select {
		case <-ctx.Done():
			over = true
		case <-d.feed.look: // there may be leases again
			look.Reset(d.lookAtCredit())
			continue
		case <-look.C:
			look.Reset(d.lookAtCredit())
			continue
		case <-d.feed.wake:
		case <-settle:
			d.feed.settle()
		case <-next.C:
			next.Reset(feedEvery)
		}
		if err := d.feedOnce(); err != nil {
			d.log.Warn("the history is not kept", "err", err)
			d.archive.Kill()
		}
	}
}

// lookAtCredit looks at the credit of all leases, and returns the time until the next look. With many leases it looks less often, so that the
// lock is held for a small part of the time. Without leases the next look is due after feedEvery, or when unlock sees that a lease has changed.
func (d *Daemon) lookAtCredit() time.Duration {
	if d.config.Load().History.Kept == config.HistoryNone {
		return feedEvery
	}
	d.feed.rests.Store(true) // set before the look, so that a change right after it wakes the loop
	d.lock()
	leases := d.arb.LookAtCredit(d.now())
	d.unlock()
	if leases == 0 {
		return feedEvery
	}
	d.feed.rests.Store(false)
	return min(max(lookEvery, time.Duration(leases)*lookEvery/200), feedEvery)
}

// feedOnce collects the accounts of ended jobs, and those of running jobs if a batch can be sent, and sends them to the history's process. An
// error means that the caller must end the process.
func (d *Daemon) feedOnce() error {
	kept := d.config.Load().History.Kept != config.HistoryNone
	ready, all := d.feed.ready()
	d.lock()
	now := d.now()
	d.arb.LookAtUse(now)
	past := d.arb.PastJobs()
	var going []arbiter.JobAccount
	if kept && ready {
		going = d.arb.Accounts(now, all)
	}
	d.unlock()
	if !kept {
		return nil
	}
	d.countMinute()
	namesOnly := d.config.Load().Commands == config.CommandsOwn && os.Geteuid() == 0
	for i := range past {
		d.feed.put(d.rowOf(&past[i], namesOnly))
	}
	jobs := make([]rows.Job, len(going))
	for i := range going {
		jobs[i] = d.rowOf(&going[i], namesOnly)
	}
	return d.feed.send(now, jobs, all)
}

// countMinute adds the present figures of the devices to the sums of this minute. If a new minute has begun, it first puts the means of the
// last one into the feed.
func (d *Daemon) countMinute() {
	d.lock()
	now := d.now()
	all := d.arb.DeviceFigures()
	d.unlock()
	m := &d.means
	if minute := now.Unix() / int64(time.Minute/time.Second); minute != m.minute {
		for _, sum := range m.sums {
			for _, n := range []*uint64{&sum.Used, &sum.Reserved, &sum.Grantable, &sum.Unmanaged} {
				*n /= m.looks
			}
			sum.Minute = m.minute
			d.feed.putMinute(sum)
		}
		*m = minuteMeans{minute: minute, sums: map[int]rows.Minute{}}
	}
	m.looks++
	for _, is := range all {
		sum := m.sums[is.Index]
		sum.Device, sum.UUID, sum.Total = accounting.IndexNumber(is.Index), is.UUID, uint64(is.Total)
		sum.Used += uint64(is.Used)
		sum.Reserved += uint64(is.Reserved)
		sum.Grantable += uint64(is.Grantable)
		sum.Unmanaged += uint64(is.Unmanaged)
		m.sums[is.Index] = sum
	}
}
