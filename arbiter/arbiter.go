package arbiter

import (
	"time"

	"github.com/gpuarb/gpuarb/accounting"
)

// Arbiter is the state of one machine. Make one with New. Not safe for
// concurrent use.
type Arbiter struct {
	words  Words
	policy Policy
}

// New returns an arbiter without devices.
func New(policy Policy, words Words) *Arbiter { return &Arbiter{words: words, policy: policy} }

// SetPolicy puts a new configuration in force, for running leases too. Limits that
// were changed live stay; what is lowered below what is held is over, as by SetJobLimits.
func (a *Arbiter) SetPolicy(now time.Time, p Policy) { a.policy = p }

// AddDevice makes a device known, or known again after it was lost. A device
// with the index of one that is there replaces its description.
func (a *Arbiter) AddDevice(now time.Time, d Device) {}

// LoseDevice marks a device lost: its leases are lost, requests there are refused
// with ReasonDeviceLost, the other devices go on. Unknown indices are ignored.
func (a *Arbiter) LoseDevice(now time.Time, index int) {}

// Used returns the bytes in use of each lease on a device, for Usage.UsedBefore.
func (a *Arbiter) Used(device int) map[LeaseID]accounting.Bytes { return nil }

// Observe takes a reading of a device.
func (a *Arbiter) Observe(now time.Time, u Usage) {}

// OpenJob opens a job. A *Refusal tells that more was asked than the rule allows
// (ReasonDenied), or that memory.min has no room (ReasonDeviceFull, ReasonSharedFull).
func (a *Arbiter) OpenJob(now time.Time, r JobRequest) (JobInfo, error) { return JobInfo{}, nil }

// CloseJob tells that the runner is gone; the job ends with its last process.
func (a *Arbiter) CloseJob(now time.Time, id JobID) {}

// OpenSession opens a client's session: in a job (ErrNoJob when that is over), or
// as a job of its own. A *Refusal tells that the rule's memory.min has no room.
func (a *Arbiter) OpenSession(now time.Time, r SessionRequest) (SessionID, error) { return 0, nil }

// EndSession tells that a client's process is dead, however it died: its leases
// drain, and their bytes are grantable only after Gone.
func (a *Arbiter) EndSession(now time.Time, id SessionID) {}

// Gone tells that the device no longer has the memory of an ended session.
func (a *Arbiter) Gone(now time.Time, id SessionID, device int) {}

// Forget ends a session whose memory is known to be back, or that had none:
// EndSession, and Gone on every device.
func (a *Arbiter) Forget(now time.Time, id SessionID) {}

// Attach opens the session's lease on a device; the same one each time.
func (a *Arbiter) Attach(now time.Time, s SessionID, device int) (LeaseInfo, error) {
	return LeaseInfo{}, nil
}

// Alloc decides on a request for bytes.
func (a *Arbiter) Alloc(now time.Time, r AllocRequest) Outcome { return Outcome{} }

// Freed tells that a free saw NOTIFY in the word.
func (a *Arbiter) Freed(now time.Time, id LeaseID) {}

// Stream takes (count above 0) or gives back (below 0) streams. With Granted
// false nothing was taken.
func (a *Arbiter) Stream(now time.Time, id LeaseID, count int) StreamOutcome { return StreamOutcome{} }

// Context counts contexts made (count above 0) or destroyed (below 0), and
// returns how many there are; 0 for a lease that is not known.
func (a *Arbiter) Context(now time.Time, id LeaseID, count int) int { return 0 }

// Query answers a program's memory query. It opens no lease.
func (a *Arbiter) Query(now time.Time, s SessionID, device int) (Room, error) { return Room{}, nil }

// SetJobLimits changes a job's limits.
func (a *Arbiter) SetJobLimits(now time.Time, id JobID, c Change) error { return nil }

// SetProcessLimits changes one process's limits.
func (a *Arbiter) SetProcessLimits(now time.Time, id SessionID, c Change) error { return nil }

// RestoreJob takes a job up again after a restart of the daemon.
func (a *Arbiter) RestoreJob(now time.Time, r RestoredJob) error { return nil }

// Restore takes a session up again after a restart of the daemon. The IDs are in
// the order of r.Leases.
func (a *Arbiter) Restore(now time.Time, r RestoredSession) (SessionID, []LeaseID, error) {
	return 0, nil, nil
}

// Clamped tells that a lease's word held rubbish and was clamped.
func (a *Arbiter) Clamped(now time.Time, id LeaseID) {}

// Tick does what is due with time; once a second is right.
func (a *Arbiter) Tick(now time.Time) {}

// Snapshot returns the whole state, exact at this moment.
func (a *Arbiter) Snapshot(now time.Time) accounting.Snapshot { return accounting.Snapshot{} }

// Events returns the events since the last call.
func (a *Arbiter) Events() []Event { return nil }
