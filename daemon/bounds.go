package daemon

// This file has the bounds on what one process and one user may have open, and on numbers that clients tell. docs/threat-model.md lists all
// bounds.

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// Bounds on what one process and one user may have open. Of each table a user that is not privileged may have half.
// docs/threat-model.md lists all bounds.
const (
	sessionsPerProcess = 8
	connsPerSession    = 64
	jobsPerProcess     = 64
)

// The daemon's limit of open files, divided so that no table and no connection can lack a descriptor: a connection has two
// (socket, pidfd), a session two (pidfd, page), a job one (pidfd). The daemon's own files have the rest.
const (
	filesPerConn    = 4 // files for each connection, which has two: half of the limit
	filesPerSession = 8 // files for each session, which has two: a quarter
	filesPerJob     = 8 // files for each job, which has one: an eighth
)

// maxClaimed limits the number of streams, and of contexts, that is taken from a client's message or a record.
const maxClaimed = 1 << 16

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

// within returns the bounds of a table of which no more than most rows may be used, because the daemon has no more descriptors.
func (b bounds) within(most int) bounds {
	if most < b.size {
		b.size = most
		b.remedy += ", or raise the daemon's limit of open files (LimitNOFILE= of its unit)"
	}
	return b
}

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

// full returns an error that names the bound if one more is too many, or nil.
func (c *counts) full(pid int, uid uint32, privileged bool) error {
	switch {
	case c.perProcess > 0 && c.byPID[pid] >= c.perProcess:
		return refused(ipc.StatusTooMany, "process %d has %d %s already, the most of one process: %s", pid, c.perProcess, c.what, c.remedy)
	case !privileged && c.byUID[uid] >= c.size/2:
		return refused(ipc.StatusTooMany, "user %d has %d %s already, the most of one user: %s", uid, c.size/2, c.what, c.remedy)
	case c.all >= c.size:
		return refused(ipc.StatusTooMany, "there are %d %s, the most of all users: %s", c.all, c.what, c.remedy)
	}
	return nil
}

// raiseFileLimit lifts the soft limit of open files to the hard one, and returns it.
func raiseFileLimit() int {
	lim := unix.Rlimit{Cur: 1024, Max: 1024}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil && lim.Cur < lim.Max {
		raised := unix.Rlimit{Cur: lim.Max, Max: lim.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			lim = raised
		}
	}
	return int(min(lim.Cur, math.MaxInt32))
}

// connLimits returns the limits on connections of a daemon whose limit of open files is files.
func connLimits(files int) ipc.Limits {
	total := min(files/filesPerConn, 65536)
	return ipc.Limits{Total: total, PerPID: min(total/4, 1024)} // of the others, what ipc makes of the total
}
