package daemon

// This file detects that the process of a session has ended or executed another program: by the pidfd, by exec
// events, and by the lease page, which such a process no longer maps. sessions.go ends the session.

import (
	"context"
	"errors"
	"time"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// onExit handles the end of a watched process. The reaper calls it.
func (d *Daemon) onExit(w *watched) {
	defer d.catchPanic(nil)
	d.lock()
	defer d.unlock()
	w.ended()
}

// exitGrace is how long the daemon waits after a process's last connection closed before it reads the process's
// mappings. Most such processes are about to end, and the pidfd reports that at less cost.
const exitGrace = 10 * time.Millisecond

// checkClosed handles a closed connection whose process may still run. A process that executed another program no
// longer maps the page, and its session ends. A process that only closed its descriptors keeps the session.
func (d *Daemon) checkClosed(s *session, c *ipc.Conn) {
	d.lock()
	s.drop(c)
	look := len(s.conns) == 0 && !s.dead && !d.stopping()
	d.unlock()
	if !look {
		return
	}
	select {
	case <-d.ctx.Done():
	case <-d.after(exitGrace):
		d.checkMapped(s)
	}
}

// checksPerTick is the number of sessions without a connection that are checked each second.
const checksPerTick = 16

// checkUnconnected checks some sessions that have no connection. Such a process may still have mapped its page when
// the connection closed, and have executed another program since.
func (d *Daemon) checkUnconnected() {
	var silent []*session
	d.lock()
	for _, s := range d.sessions { // the random order of a map gives each session its turn
		if len(silent) < checksPerTick && len(s.conns) == 0 && !s.dead && s.mapped.Load() {
			silent = append(silent, s)
		}
	}
	d.unlock()
	for _, s := range silent {
		d.checkMapped(s)
	}
}

// checkMapped ends a session whose process no longer maps its page.
func (d *Daemon) checkMapped(s *session) {
	d.lock()
	var id ipc.PageID
	if !s.dead {
		id = s.pageID()
	}
	d.unlock()
	if id == (ipc.PageID{}) {
		return
	}
	mapped, err := d.inv.IsMapped(s.peer.PID, id.Ino, ipc.PageName)
	if mapped || err != nil && !errors.Is(err, procfacts.ErrGone) {
		return
	}
	d.lock()
	defer d.unlock()
	if !s.dead && id == s.pageID() { // the session has not got a new page meanwhile
		d.endSessionLocked(s)
	}
}

// recheckAll checks every session after exec events were lost, because the lost events are not known. It has its own
// loop because a process can delay it.
func (d *Daemon) recheckAll() <-chan time.Time {
	var all []*session
	d.lock()
	for _, s := range d.sessions {
		if !s.dead && s.mapped.Load() {
			all = append(all, s)
		}
	}
	d.unlock()
	for _, s := range all {
		if !d.stopping() {
			d.checkMapped(s)
		}
	}
	d.sleep(d.after(readEvery)) // one check covers all events that are lost during this pause
	return nil
}

// watchEvents listens for exec events. A program can exec while a forked child keeps the connection open. The kernel
// sends the events only to root. Without them, closed connections and the next check find the same.
//
// An event may be late. The event of a program's own start can arrive after its Hello and before it maps its page;
// such an event is ignored.
func (d *Daemon) watchEvents(ctx context.Context) {
	err := inventory.WatchExecs(ctx, d.didExec, func() { signal(d.execLost) })
	if err != nil && ctx.Err() == nil {
		d.log.Debug("no process events: exec is noticed by closed connections alone", "err", err)
	}
}

// didExec checks the sessions of a process that an event says has executed another program.
func (d *Daemon) didExec(pid int) {
	d.lock()
	var hit []*session
	for _, s := range d.sessionsByPID[pid] {
		if s.mapped.Load() {
			hit = append(hit, s)
		}
	}
	d.unlock()
	for _, s := range hit {
		d.checkMapped(s)
	}
}
