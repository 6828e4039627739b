package daemon

// This file makes snapshots of the state, for the filesystem (gpufs) and for clients (serve.go). snapshotcache.go has
// what their readers share.

import (
	"encoding/json"
	"os"
	"runtime"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/version"
	"github.com/gpuarb/gpuarb/ipc"
)

// Snapshot returns the current state of everything. It implements gpufs.View.
func (d *Daemon) Snapshot() figures.Snapshot {
	d.noteAccess()
	return d.state()
}

// state returns what Snapshot returns, for the daemon's own use: it does not count as a read by a user (idle.go).
func (d *Daemon) state() figures.Snapshot { return d.cache.states.Get(d.snapshot) }

// Leases returns the current state of all leases, and nothing else.
func (d *Daemon) Leases() figures.Snapshot {
	d.noteAccess()
	return d.cache.leases.Get(func() figures.Snapshot {
		s := d.underLock(d.arb.CopyOfLeases)
		s.Arrange()
		return s
	})
}

// SnapshotOf returns the current state of the processes with a PID, and of their jobs.
func (d *Daemon) SnapshotOf(pid int) figures.Snapshot {
	d.noteAccess()
	return d.underLock(func(now time.Time) figures.Snapshot { return d.arb.SnapshotOf(now, idsOf(d.sessionsByPID[pid])...) })
}

func idsOf(sessions []*session) []arbiter.SessionID {
	ids := make([]arbiter.SessionID, len(sessions))
	for i, s := range sessions {
		ids[i] = s.id
	}
	return ids
}

// snapshot makes a new snapshot. Snapshot limits how often it is called.
func (d *Daemon) snapshot() figures.Snapshot {
	defer d.catchPanic(nil)
	s := d.underLock(func(now time.Time) figures.Snapshot {
		s := d.arb.Copy(now)
		s.Config = d.configured
		d.addDriverLimitsLocked(&s)
		d.addNoProcessLocked(&s)
		return s
	})
	s.Arrange()
	s.Stats.Malformed = d.malformed.Load()
	s.Version = version.Version
	s.History = d.historyState()
	s.Stats.Goroutines = uint64(runtime.NumGoroutine())
	return s
}

// historyState returns whether the history is kept.
func (d *Daemon) historyState() figures.HistoryState {
	is := figures.HistoryState{State: figures.HistoryKept, Folder: d.paths.history, Problem: d.feed.state()}
	if is.Problem != "" {
		is.State = figures.HistoryFailing
	}
	if d.config.Load().History.Kept == config.HistoryNone {
		is = figures.HistoryState{State: figures.HistoryNone}
	}
	return is
}

// underLock makes a snapshot with the lock held.
func (d *Daemon) underLock(take func(time.Time) figures.Snapshot) figures.Snapshot {
	d.lock()
	defer d.unlock()
	return take(d.now())
}

// hidesCommands reports whether a reader is shown only the command lines of that user's own programs.
func (d *Daemon) hidesCommands(reader uint32) bool {
	return d.config.Load().Commands == config.CommandsOwn && !isAdmin(reader)
}

// confined is the user number for reads by all admins that are not privileged, such as root in containers. No user
// has this number. The web page's server reads under another number (Stranger), so that they do not share a turn.
const confined = figures.Stranger - 1

// reader returns the user whose command lines a client is shown. It is the client's own user, with two exceptions
// that see no command lines: confined for root in a container, and Stranger for the web page's server, because all
// users can see the page. In a user's own daemon there is no exception for the page, because all programs belong to
// that user.
func (cl *client) reader() uint32 {
	peer := cl.conn.Peer()
	if isAdmin(peer.UID) && !peer.Privileged {
		return confined
	}
	if os.Geteuid() == 0 && cl.d.page.Is(peer.PID) {
		return figures.Stranger
	}
	return peer.UID
}

// within returns the job of the cgroup in which a client runs, if the client may see only that job; 0: it may see all jobs,
// because it runs in no such cgroup, or is privileged.
func (cl *client) within() uint64 {
	if peer := cl.conn.Peer(); !peer.Privileged {
		return uint64(cl.d.boundJob(peer.PID))
	}
	return 0
}

// snapshot answers with the state as JSON, as far as the client may see it.
func (cl *client) snapshot(m ipc.Message) error {
	cl.noteAccess()
	if job := cl.within(); job != 0 {
		return cl.sendText(m, func(*audience) text {
			s := cl.d.state().Within(job)
			if uid := cl.reader(); cl.d.hidesCommands(uid) {
				s = s.WithOwnCommands(uid)
			}
			return textOf(s)
		})
	}
	return cl.sendText(m, func(r *audience) text {
		if uid := cl.reader(); cl.d.hidesCommands(uid) {
			return r.texts.Get(func() text { return textOf(cl.d.state().WithOwnCommands(uid)) })
		}
		return cl.d.cache.json.Get(func() text { return textOf(cl.d.snapshot()) })
	})
}

func textOf(s figures.Snapshot) (t text) {
	t.bytes, t.err = json.Marshal(s)
	return t
}

// sendText answers with a text that is made once for all clients that wait for it. It is sent in parts.
func (cl *client) sendText(m ipc.Message, get func(*audience) text) error {
	uid := cl.reader() // the web page's server thus does not wait for other processes of its user
	readers := cl.d.cache.audienceOf(uid)
	late := time.NewTimer(snapshotTimeout)
	defer late.Stop()
	select {
	case readers.places <- struct{}{}:
	case <-late.C:
		return refused(ipc.StatusTooMany, "%d clients of user %d are reading the state at once, the most of one user: end some of them (`gpuarb top`, the page), or ask again later", readersPerUser, uid)
	}
	defer func() { <-readers.places }()
	made := get(readers)
	if made.err != nil {
		return made.err
	}
	return cl.conn.ReplySnapshot(m.Header, made.bytes, snapshotTimeout)
}
