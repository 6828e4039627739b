package daemon

// This file has the bounds on what a process and a user may have open, and on numbers that clients send. hello.go,
// jobopen.go, sessions.go and keptlimits.go check them. docs/threat-model.md lists all bounds.

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// Bounds for one process or one session. A user that is not privileged may have half of the rows of each table.
const (
	sessionsPerProcess = 8
	connsPerSession    = 64
	jobsPerProcess     = 64
)

// Shares of the daemon's limit of open files. They leave enough descriptors for every table and connection. A
// connection has two descriptors (socket, pidfd), a session two (pidfd, page), a job one (pidfd). The daemon's own
// files use the rest.
const (
	filesPerConn    = 4 // files reserved for each connection, which has two: half of the limit
	filesPerSession = 8 // files reserved for each session, which has two: a quarter
	filesPerJob     = 8 // files reserved for each job, which has one: an eighth
)

// maxClaimed limits the number of streams, and of contexts, that is accepted from a client's message or a record.
const maxClaimed = 1 << 16

// bounds has the bounds of one table.
type bounds struct {
	what       string // rows of the table
	size       int    // rows that one process may have; 0: as many as its user
	perProcess int    // 0: as many as the user may have
	remedy     string
}

var (
	sessionBounds = bounds{"sessions", statefile.MaxSessions, sessionsPerProcess, "end some of the programs"}
	jobBounds     = bounds{"jobs", statefile.MaxJobs, jobsPerProcess, "end some, `gpuarb ps` lists them"}
	leaseBounds   = bounds{"leases", statefile.MaxLeases, 0, "end some of the programs, `gpuarb ps` lists them"}
	limitBounds   = bounds{"changed limits", statefile.MaxLimits, 0, "end some of the programs whose limits were changed"}
)

// within returns the bounds with the table limited to most rows, because the daemon has no more descriptors.
func (b bounds) within(most int) bounds {
	if most < b.size {
		b.size = most
		b.remedy += ", or raise the daemon's limit of open files (LimitNOFILE= of its unit)"
	}
	return b
}

// counts has the number of rows of a table that each process and each user has.
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

// full returns an error that names the bound if one more row is too many; nil: there is room.
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

// raiseFileLimit raises the soft limit of open files to the hard limit, and returns the new limit.
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

// connLimits returns the limits on connections for a daemon that may have this many open files.
func connLimits(files int) ipc.Limits {
	total := min(files/filesPerConn, 65536)                     // ipc derives the other limits from Total
	return ipc.Limits{Total: total, PerPID: min(total/4, 1024)} // ipc derives the other limits from Total
}
