package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/inventory"
	"github.com/gpuarb/gpuarb/ipc"
)

const (
	// reclaimPatience is how long a dead process's memory is looked for often. What
	// is not back by then the arbiter counts as unmanaged, by the name of who keeps it.
	reclaimPatience = time.Second
	// keeperAfter is when somebody else is looked for who keeps the memory.
	keeperAfter = reclaimPatience / 2
)

// reclaim has the devices of a dead session looked at until its memory is really back on
// each, which makes its bytes grantable. A driver frees a process's memory when its last
// descriptor of the device closes, which may be later than its death. The lock is held.
func (d *Daemon) reclaim(s *session, devices []int) {
	for _, index := range devices {
		r := d.readers[index]
		r.draining[s] = &drain{dead: d.now()}
		signal(r.wake)
	}
}

// drained closes the leases of dead sessions whose memory is back, as a reading shows
// that began after they died. A device that does not say who uses it is believed to free
// at death; the memory of one that is lost went with it. The lock is held.
func (r *reader) drained(began time.Time, usage inventory.Usage) {
	if len(r.draining) == 0 {
		return
	}
	held := map[int]bool{}
	for _, p := range usage.Processes {
		held[p.PID] = p.Bytes > 0
	}
	for s, dr := range r.draining {
		if !began.Before(dr.dead) && (usage.Lost || !usage.ProcessesKnown || !held[s.peer.PID]) {
			r.gone(s)
		}
	}
}

// gone closes a dead session's lease on the device. The lock is held.
func (r *reader) gone(s *session) {
	d := r.d
	delete(r.draining, s)
	delete(d.keepers, s.peer.PID)
	d.arb.Gone(d.now(), s.id, r.index)
	d.forgetLease(s, r.index)
}

// nameKeepers looks for who keeps the memory of those that are dead for a while. A forked
// child inherits the descriptor of the lease page with that of the device, so that
// whoever has the page is the one, whatever driver it is.
func (r *reader) nameKeepers() {
	d, now := r.d, r.d.now()
	dead := map[ipc.PageID]int{} // whose page it is
	d.mu.Lock()
	for s, dr := range r.draining {
		if !dr.named && now.Sub(dr.dead) > keeperAfter {
			dr.named = true
			dead[ipc.PageID{Dev: s.record.PageDev, Ino: s.record.PageInode}] = s.peer.PID
		}
	}
	d.mu.Unlock()
	if len(dead) == 0 {
		return
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return
	}
	for _, proc := range procs {
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil && pid != os.Getpid() {
			d.nameKeeper(pid, proc, dead)
		}
	}
}

// nameKeeper notes a process that has pages of dead clients as who keeps their memory.
func (d *Daemon) nameKeeper(pid int, proc string, dead map[ipc.PageID]int) {
	for _, path := range linksTo(filepath.Join(proc, "fd"), nil) {
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
		d.mu.Lock()
		d.keepers[client] = k
		d.mu.Unlock()
	}
}
