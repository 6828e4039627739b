package daemon

// This file decides whether the daemon is idle. A GPU that no program uses may be put to sleep by the kernel, and each reading wakes
// it, which runs down a laptop's battery. So the readers (reader.go) read seldom while the daemon has nothing to do, and
// do not read a device that is asleep.

// looked notes a look at the state by a user: with a command, a file or the page. After a pause it wakes the readers.
func (d *Daemon) noteAccess() {
	if d.access.noteUser(d.now()) {
		d.wakeReaders()
	}
}

// looked notes a look of a client. A look of the process that serves the page counts only while a browser shows the page.
func (cl *client) noteAccess() {
	if !cl.d.page.Is(cl.conn.Peer().PID) || cl.d.access.notePage(cl.d.now()) {
		cl.d.noteAccess()
	}
}

// idle reports whether there is no session and no job, and no user has looked at the state for activeFor.
func (d *Daemon) idle() bool {
	if d.access.recent(d.now()) {
		return false
	}
	d.lock()
	defer d.unlock()
	return len(d.sessions)+len(d.jobs) == 0
}
