package daemon

// This file decides whether the daemon is idle. The kernel may suspend a GPU that no program uses, and each reading
// wakes it, which drains a laptop's battery. The readers (reader.go) therefore read rarely while the daemon is idle,
// and skip suspended devices. accesstimes.go has the times.

// noteAccess records that a user reads the state: with a command, a file or the web page. After a pause it wakes the
// readers.
func (d *Daemon) noteAccess() {
	if d.access.noteUser(d.now()) {
		d.wakeReaders()
	}
}

// noteAccess records that a client reads the state. Reads by the web page's server count only while a browser shows
// the page.
func (cl *client) noteAccess() {
	if !cl.d.page.Is(cl.conn.Peer().PID) || cl.d.access.notePage(cl.d.now()) {
		cl.d.noteAccess()
	}
}

// idle reports whether the daemon has neither sessions nor jobs, and the last read by a user is older than activeFor.
func (d *Daemon) idle() bool {
	if d.access.recent(d.now()) {
		return false
	}
	d.lock()
	defer d.unlock()
	return len(d.sessions)+len(d.jobs) == 0
}
