package daemon

// This file sees by the devices' figures that the memory of dead processes is back, and finds out who keeps it if it is not. reader.go calls it.

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/daemon/inventory"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// reclaimPatience is how long a dead process's memory is looked for often. What
	// is not back by then the arbiter counts as unmanaged, by the name of who keeps it.
	reclaimPatience = time.Second
	// keeperAfter is when somebody else is looked for who keeps the memory.
	keeperAfter = reclaimPatience / 2
)

// drainedLocked closes the leases of dead sessions whose memory is back, as a reading shows
// that began after they died. A device that does not say who uses it is believed to free
// at death; the memory of one that is lost went with it.
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

// nameKeeper notes a process that has pages of dead clients as who keeps their memory.
func (d *Daemon) nameKeeper(pid int, dead map[ipc.PageID]int) {
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
		delete(dead, id) // the first that is found
		k := named{command: fmt.Sprintf("?[%d]", pid)}
		if f, err := d.inv.Facts(pid); err == nil {
			k = named{uid: f.UID, user: f.User, command: fmt.Sprintf("%s[%d]", f.Comm, pid)}
		}
		d.lock()
		d.keepers[client] = k
		d.unlock()
	}
}

// nameKeepers looks for who keeps the memory of those that are dead for a while. A forked
// child inherits the descriptor of the lease page with that of the device, so that
// whoever has the page is the one, whatever driver it is.
func (r *reader) nameKeepers() {
	d, now := r.d, r.d.now()
	dead := map[ipc.PageID]int{} // whose page it is
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
			d.nameKeeper(pid, dead)
		}
	}
}
