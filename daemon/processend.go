package daemon

// This file notices that the process of a session has ended, or runs another program: by its pidfd, by events of exec, and by its page, which
// it no longer maps. sessions.go ends the session.

import (
	"context"
	"errors"
	"time"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// onExit is called by the reaper when a watched process has ended.
func (d *Daemon) onExit(w *watched) {
	defer d.catchPanic(nil)
	d.lock()
	defer d.unlock()
	w.ended()
}

// exitGrace is how long a process is given to end that has closed its last connection, before it is
// looked at: most do so by ending, and of that its pidfd tells at less expense.
const exitGrace = 10 * time.Millisecond

// connClosed is for a connection that broke while its process may live on. A
// process that did exec no longer maps the page, and its lease ends; one that
// merely closed its descriptors keeps it.
func (d *Daemon) connClosed(s *session, c *ipc.Conn) {
	d.lock()
	delete(s.conns, c)
	look := len(s.conns) == 0 && !s.dead && !d.stopping()
	d.unlock()
	if !look {
		return
	}
	select {
	case <-s.over:
	case <-d.ctx.Done():
	case <-d.after(exitGrace):
		d.checkMapped(s)
	}
}

// checksPerTick is how many sessions without a connection are looked at in a second.
const checksPerTick = 16

// checkUnconnected looks at sessions that have no connection, some at a time: when the last
// one broke they may have had their page still, and done exec since.
func (d *Daemon) checkUnconnected() {
	var silent []*session
	d.lock()
	for _, s := range d.sessions { // which ones is left to chance, so that all have their turn
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
	if !s.dead && id == s.pageID() { // no new one meanwhile
		d.endSessionLocked(s)
	}
}

// recheckAll looks at every session when exec events were lost: which, nobody knows. It is
// apart from what is due with time, because a process can make it wait.
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
	d.sleep(d.after(readEvery)) // more may be lost meanwhile; one look serves for that
	return nil
}

// watchEvents listens for exec: a program can exec with its connection still
// open elsewhere (a forked child inherited it). It is a hint that root gets;
// without it the closed connection and the next look tell the same. The hint may
// be late: that of a program's own start can come when it has said Hello and not
// mapped its page yet, and tells nothing then.
func (d *Daemon) watchEvents(ctx context.Context) {
	err := inventory.Watch(ctx, d.didExec, func() { signal(d.execLost) })
	if err != nil && ctx.Err() == nil {
		d.log.Debug("no process events: exec is noticed by closed connections alone", "err", err)
	}
}

// didExec is for a process that did exec, or so it is said.
func (d *Daemon) didExec(pid int) {
	d.lock()
	var hit []*session
	for _, s := range d.ofProcess[pid] {
		if s.mapped.Load() {
			hit = append(hit, s)
		}
	}
	d.unlock()
	for _, s := range hit {
		d.checkMapped(s)
	}
}
