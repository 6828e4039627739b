package daemon

import (
	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// Bounds on what one process may have open. Of each table a user other than root (and the
// daemon's own) may have half, and all such users together seven eighths: what is left is
// root's, to look and to clear up. docs/threat-model.md lists all bounds.
const (
	sessionsPerProcess = 8
	connsPerSession    = 64
	jobsPerProcess     = 64
)

// bounds are those of one table.
type bounds struct {
	what       string
	size       int // of the table
	perProcess int // 0: as many as the user may have
	remedy     string
}

var (
	sessionBounds = bounds{"sessions", statefile.MaxSessions, sessionsPerProcess, "end some of the programs"}
	jobBounds     = bounds{"jobs", statefile.MaxJobs, jobsPerProcess, "end some, `gpuarb ps` lists them"}
	leaseBounds   = bounds{"leases", statefile.MaxLeases, 0, "end some of the programs, `gpuarb ps` lists them"}
	limitBounds   = bounds{"changed limits", statefile.MaxLimits, 0, "end some of the programs whose limits were changed"}
)

// counts is how many rows of a table a process and a user have.
type counts struct {
	bounds
	all   int
	byPID map[int]int
	byUID map[uint32]int
}

func newCounts(of bounds) *counts {
	return &counts{bounds: of, byPID: map[int]int{}, byUID: map[uint32]int{}}
}

func (c *counts) add(pid int, uid uint32) {
	c.all++
	c.byPID[pid]++
	c.byUID[uid]++
}

func (c *counts) drop(pid int, uid uint32) {
	c.all--
	if c.byPID[pid]--; c.byPID[pid] <= 0 {
		delete(c.byPID, pid)
	}
	if c.byUID[uid]--; c.byUID[uid] <= 0 {
		delete(c.byUID, uid)
	}
}

// full says why one more is too many, or nil.
func (c *counts) full(pid int, uid uint32, privileged bool) error {
	user, all := c.size/2, c.size/8*7
	if privileged {
		user, all = c.size, c.size
	}
	switch {
	case c.perProcess > 0 && c.byPID[pid] >= c.perProcess:
		return refused(ipc.StatusTooMany, "process %d has %d %s already, the most of one process: %s", pid, c.perProcess, c.what, c.remedy)
	case c.byUID[uid] >= user:
		return refused(ipc.StatusTooMany, "user %d has %d %s already, the most of one user: %s", uid, user, c.what, c.remedy)
	case c.all >= all && all < c.size:
		return refused(ipc.StatusTooMany, "there are %d %s of %d, and the last eighth is root's: %s", c.all, c.what, c.size, c.remedy)
	case c.all >= all:
		return refused(ipc.StatusTooMany, "there are %d %s, and there is room for no more: %s", c.all, c.what, c.remedy)
	}
	return nil
}

// connLimits are the limits on connections that the daemon's own limit of open files
// allows. A connection has a socket and a pidfd, and a session a page besides; one that joins a session has a socket alone.
// The last quarter is for jobs, for sessions whose first connection is closed, and for the daemon's own files.
func connLimits() ipc.Limits {
	files := uint64(1024)
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		files = lim.Cur
	}
	total := int(min(max(files/4, 16), 65536))
	return ipc.Limits{Total: total, PerPID: min(total/4, 1024)} // of the others, what ipc makes of the total
}
