package daemon

// This file has the session of one client process, its request and its leases. sessions.go has its life.

import (
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/shim"
)

// session is one client process. The kernel knows the process by PID and start time; the process itself knows the
// session by a token. The daemon's lock guards all fields that change.
type session struct {
	id             arbiter.SessionID
	token          ipc.Token
	peer           ipc.Peer // peer at the first connection, without its PIDFD
	life           watched  // watch on the process
	job            arbiter.JobID
	caller         string // name of the program in messages that it prints
	page           *ipc.LeasePage
	record         *statefile.Session
	index          int           // index of record
	leases         []*shim.Lease // leases by slot of the page, up to the last slot that had one; nil: none
	conns          []*ipc.Conn
	died           time.Time // time at which its end was noticed; zero: not dead
	resumes        int       // number of Resumes; connections from before the last Resume are refused
	run            bool      // the process belongs to a job of `gpuarb run`
	dead           bool
	keeperSearched bool // the search for a process that keeps its memory was made
	// mapped says that the client has sent a message since it got its page, so that it has mapped the page.
	mapped atomic.Bool
}

// sessionOf returns the session of a record. It is in no table yet.
func sessionOf(index int, r *statefile.Session) *session {
	return &session{token: r.Token, job: arbiter.JobID(r.Job), run: r.Job != 0, record: r, index: index,
		peer: ipc.Peer{PID: int(r.PID), StartTicks: r.StartTicks, UID: r.UID, GID: r.GID, PIDFD: -1}, life: watched{pidfd: -1}}
}

// drop removes a connection.
func (s *session) drop(c *ipc.Conn) {
	s.conns = slices.DeleteFunc(s.conns, func(x *ipc.Conn) bool { return x == c })
}

// request returns the request with which the arbiter opens the session, built from its record.
func (s *session) request(proc rules.Process) arbiter.SessionRequest {
	r := s.record
	request := arbiter.SessionRequest{Process: proc, Job: s.job, Max: optionalSize(r.Max, r.MaxPerMille), Streams: int(r.Streams),
		OnFull: map[uint32]rules.OnFull{ipc.OnFullDeny: rules.OnFullDeny, ipc.OnFullWait: rules.OnFullWait}[r.OnFull],
		Slots:  int(r.Slots), SlotScope: scopeOf(r.SlotScope), Unreserved: r.Unreserved == 1}
	if r.StreamReserve != ipc.NoLimit {
		request.StreamReserve = new(accounting.Bytes(r.StreamReserve))
	}
	return request
}

// optionalSize returns the amount that a job or client asks for; nil: none.
func optionalSize(bytes uint64, share uint32) *accounting.Size {
	if size := shim.SizeOf(bytes, share); !size.Max {
		return &size
	}
	return nil
}

// scopeOf converts the scope of a slot from its number in messages.
func scopeOf(v uint32) rules.Scope {
	return map[uint32]rules.Scope{ipc.ScopeJob: rules.ScopeJob, ipc.ScopeProcess: rules.ScopeProcess,
		ipc.ScopeThread: rules.ScopeThread}[v]
}

// wireScope is the inverse of scopeOf.
func wireScope(s rules.Scope) uint32 {
	return map[rules.Scope]uint32{rules.ScopeJob: ipc.ScopeJob, rules.ScopeProcess: ipc.ScopeProcess,
		rules.ScopeThread: ipc.ScopeThread}[s]
}

// process converts the kernel's facts to a process that rules are matched against.
func process(f procfacts.Facts, pid int) rules.Process {
	return rules.Process{PID: pid, StartTicks: f.StartTicks, UID: f.UID, GID: f.GID, User: f.User,
		Groups: f.GroupNames, Exe: f.Exe, Command: f.Command, Cgroup: f.Cgroup, AlsoIn: f.AlsoIn, Unit: f.Unit, Container: f.Container, NSPID: f.NSPID}
}

// processOwner returns the process of a session as an owner of live limits.
func processOwner(s *session) rules.Owner {
	return rules.Owner{Kind: rules.OfProcess, ID: uint64(s.peer.PID), Start: s.peer.StartTicks}
}

// pageID returns the identity of the page that was made for the session.
func (s *session) pageID() ipc.PageID {
	return ipc.PageID{Dev: s.record.PageDev, Ino: s.record.PageInode}
}

// open yields the session's leases.
func (s *session) open() iter.Seq[*shim.Lease] {
	return func(yield func(*shim.Lease) bool) {
		for _, l := range s.leases {
			if l != nil && !yield(l) {
				return
			}
		}
	}
}

// leaseAt returns the lease of a slot of the session's page, or nil.
func (s *session) leaseAt(slot uint32) *shim.Lease {
	if int(slot) >= len(s.leases) {
		return nil
	}
	return s.leases[slot]
}

// freeSlot returns the first slot of the session's page without a lease; ipc.PageSlots: there is none.
func (s *session) freeSlot() uint32 {
	if i := slices.Index(s.leases, nil); i >= 0 {
		return uint32(i)
	}
	return uint32(len(s.leases))
}

// leaseOn returns the session's lease on a device, or nil.
func (s *session) leaseOn(device int) *shim.Lease {
	for l := range s.open() {
		if l.Device == device {
			return l
		}
	}
	return nil
}

// lease returns the lease of a slot that a client names.
func (s *session) lease(slot uint32) (*shim.Lease, error) {
	if s.dead {
		return nil, refused(ipc.StatusNoSession, "the session has ended")
	}
	l := s.leaseAt(slot)
	if l == nil {
		return nil, refused(ipc.StatusNoLease, "slot %d has no lease: Attach comes first", slot)
	}
	return l, nil
}
