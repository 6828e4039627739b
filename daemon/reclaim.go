package daemon

// This file closes the leases of dead processes once the devices show that their memory is free. If memory stays in
// use, it finds the process that keeps it. reader.go calls it.

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// reclaimPatience is how long the devices are read often after a process has died. The arbiter then counts memory
	// that is still in use as unmanaged, under the name of the process that keeps it.
	reclaimPatience = time.Second
	// keeperAfter is the time after a death at which the search begins for another process that keeps the memory.
	keeperAfter = reclaimPatience / 2
)

// drainedLocked closes the leases of dead sessions whose memory is free, as shown by a reading that began after their
// deaths. If a device does not list its processes, memory counts as free after death. The memory of a lost device is
// gone with it.
func (r *reader) drainedLocked(began time.Time, usage inventory.Usage) {
	if len(r.draining) == 0 {
		return
	}
	held := map[int]bool{}
	for _, p := range usage.Processes {
		held[p.PID] = p.Bytes > 0
	}
	for s := range r.draining {
		if !began.Before(s.died) && (usage.Lost || !usage.ProcessesKnown || !held[s.peer.PID]) {
			r.closeLeaseLocked(s)
		}
	}
}

// noteKeeper records a process as the keeper of dead clients' memory if it has their pages open.
func (d *Daemon) noteKeeper(pid int, dead map[ipc.PageID]int) {
	for _, path := range pageLinks(pid, nil, "fd") {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			continue
		}
		id := ipc.PageID{Dev: st.Dev, Ino: st.Ino}
		client, ok := dead[id]
		if !ok {
			continue
		}
		delete(dead, id) // the first keeper found is enough
		k := named{keeps: true, command: fmt.Sprintf("?[%d]", pid)}
		if f, err := d.inv.Facts(pid); err == nil {
			k = named{keeps: true, pid: pid, start: f.StartTicks, uid: f.UID, user: f.User, command: fmt.Sprintf("%s[%d]", f.Comm, pid)}
		}
		d.lock()
		d.keepers[client] = k
		d.unlock()
	}
}

// findKeepers searches for the processes that keep the memory of dead clients. A forked child inherits the
// descriptors of the lease page and of the device together. A process that has the page therefore has the device, for
// every driver.
func (r *reader) findKeepers() {
	d, now := r.d, r.d.now()
	dead := map[ipc.PageID]int{} // PID of the client that had the page
	d.lock()
	for s := range r.draining {
		if !s.keeperSearched && now.Sub(s.died) > keeperAfter {
			s.keeperSearched = true
			dead[s.pageID()] = s.peer.PID
		}
	}
	d.unlock()
	if len(dead) == 0 {
		return
	}
	pids, _ := d.inv.PIDs()
	for _, pid := range pids {
		if pid != os.Getpid() {
			d.noteKeeper(pid, dead)
		}
	}
}
