package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// reclaimPatience is how long a dead process's memory is looked for often. What
	// is not back by then the arbiter counts as unmanaged, by the name of who keeps it.
	reclaimPatience = time.Second
	reclaimFirst    = 200 * time.Microsecond // the first pause between two looks
	reclaimMost     = 10 * time.Millisecond  // the longest, within reclaimPatience
	reclaimLate     = time.Second            // the pause after it
	// keeperAfter is when somebody else is looked for who keeps the memory.
	keeperAfter = reclaimPatience / 2
)

// reclaim waits until the memory of a dead session is really back on each of its
// devices, and then makes its bytes grantable. A driver frees a process's memory
// when its last descriptor of the device closes, which may be later than its death.
func (d *Daemon) reclaim(s *session, devices []int) {
	dead := d.now()
	deadline, named := dead.Add(reclaimPatience), false
	for pause := reclaimFirst; ; {
		left := devices[:0]
		for _, index := range devices {
			if d.memoryGone(index, s.peer.PID, d.now().After(deadline)) {
				d.gone(s, index)
			} else {
				left = append(left, index)
			}
		}
		if devices = left; len(devices) == 0 {
			return
		}
		if !named && d.now().Sub(dead) > keeperAfter {
			d.nameKeeper(s)
			named = true
		}
		if pause = min(2*pause, reclaimMost); d.now().After(deadline) {
			pause = reclaimLate
		}
		select {
		case <-d.ctx.Done():
			return // the records stay; the next daemon goes on
		case <-d.after(pause):
		}
	}
}

// memoryGone asks the device whether a process still holds memory. A device that
// does not say who uses it is believed to free at death; one that does not
// answer at all, when it has been asked for long enough (late).
func (d *Daemon) memoryGone(index, pid int, late bool) bool {
	bytes, known, err := d.inv.ProcessBytes(index, pid)
	if err != nil {
		return late
	}
	return !known || bytes == 0
}

// gone closes a dead session's lease on one device.
func (d *Daemon) gone(s *session, index int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return
	}
	delete(d.keepers, s.peer.PID)
	d.arb.Gone(d.now(), s.id, index)
	d.forgetLease(s, index)
	d.drainEvents()
}

// nameKeeper looks for who keeps a dead client's device open. A forked child
// inherits the descriptor of the lease page with that of the device, so that
// whoever has the page is the one, whatever driver it is.
func (d *Daemon) nameKeeper(s *session) {
	id := ipc.PageID{Dev: s.record.PageDev, Ino: s.record.PageInode}
	self := os.Getpid()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, proc := range procs {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil || pid == self || len(linksTo(filepath.Join(proc, "fd"), &id)) == 0 {
			continue
		}
		name := "?"
		if f, err := d.inv.Facts(pid); err == nil {
			name = f.Comm
		}
		d.mu.Lock()
		d.keepers[s.peer.PID] = fmt.Sprintf("%s[%d]", name, pid)
		d.mu.Unlock()
		return
	}
}
