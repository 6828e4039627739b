package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// Bounds on what one client may have open. One user other than root (and the
// daemon's own) gets half of what there is.
const (
	sessionsPerProcess = 8
	connsPerSession    = 64
	jobsPerProcess     = 64
	sessionsPerUser    = statefile.MaxSessions / 2
	jobsPerUser        = statefile.MaxJobs / 2
)

// counts is how many of something a process and a user have.
type counts struct {
	byPID map[int]int
	byUID map[uint32]int
}

func newCounts() counts { return counts{map[int]int{}, map[uint32]int{}} }

func (c counts) add(pid int, uid uint32) {
	c.byPID[pid]++
	c.byUID[uid]++
}

func (c counts) drop(pid int, uid uint32) {
	if c.byPID[pid]--; c.byPID[pid] <= 0 {
		delete(c.byPID, pid)
	}
	if c.byUID[uid]--; c.byUID[uid] <= 0 {
		delete(c.byUID, uid)
	}
}

// full says why one more is too many, or nil.
func (c counts) full(what string, pid int, uid uint32, perProcess, perUser int) error {
	switch {
	case c.byPID[pid] >= perProcess:
		return refused(ipc.StatusTooMany, "process %d has %d %s already", pid, perProcess, what)
	case uid != 0 && int(uid) != unix.Geteuid() && c.byUID[uid] >= perUser:
		return refused(ipc.StatusTooMany, "user %d has %d %s already", uid, perUser, what)
	}
	return nil
}

// connLimits are the limits on connections that the daemon's own limit of open files
// allows: a connection has a socket and a pidfd, and a session a page besides.
func connLimits() ipc.Limits {
	files := uint64(1024)
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		files = lim.Cur
	}
	total := int(min(max(files/4, 16), 65536))
	return ipc.Limits{Total: total, PerUID: max(min(total*3/4, 16384), 1), PerPID: max(min(total/4, 1024), 1)}
}
