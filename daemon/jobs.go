package daemon

// This file has the life of a job, from its record to its end. jobopen.go answers requests for jobs; orphans.go
// searches for the processes of a job whose runner has ended.

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// maxJobID is higher than any job number: a record with a higher number is damaged.
const maxJobID = 1 << 62

// Values of Job.Released in the state file.
const (
	jobReleased     = 1 // the job holds nothing but what its processes use
	jobCommandEnded = 2 // the job's command has ended, and the job still holds its reservation
)

// jobContextsInside is a flag of Job.Flags in the state file, and of no request: contexts count in the budget. After the close of a
// binding, the record of the binding is gone, and the budget still holds for the programs that run.
const jobContextsInside uint32 = 1 << 31

// Further bits of Job.Flags in the state file, which no request has. The bits of jobAround are a number: the index, plus 1, of the record
// of the closed binding around the job; 0: no closed binding is around it.
const (
	jobBound       uint32 = 1 << 30 // the job of a cgroup, open or closed
	jobAroundShift        = 16      // lowest bit of jobAround
	jobAround      uint32 = (2*statefile.MaxJobs - 1) << jobAroundShift
	jobRequested   uint32 = 1<<jobAroundShift - 1 // bits that come from the request
)

// newJob returns the job of a record. The job is in no table yet.
func newJob(index int, r *statefile.Job) *job {
	return &job{members: map[*session]struct{}{}, id: arbiter.JobID(r.ID), token: r.Token,
		jobOrigin: jobOrigin{procfacts.Started{PID: int(r.RunnerPID), StartTicks: r.RunnerStart}, r.Request}, uid: r.UID, index: index, anchor: watched{pidfd: -1}}
}

// jobRequest converts the request in a record for the arbiter.
func jobRequest(proc rules.Process, r *statefile.Job) arbiter.JobRequest {
	has := func(flag uint32) bool { return r.Flags&flag != 0 }
	request := arbiter.JobRequest{Process: proc, Max: optionalSize(r.Max, r.MaxPerMille), Min: optionalSize(r.Min, r.MinPerMille),
		Streams: int(r.Streams), PerProcess: has(ipc.JobPerProcess), Command: statefile.TextOf(&r.Command), Name: nameOf(r), Key: jobKeyOf(r.Token),
		Wait: has(ipc.JobWait), NoWait: has(ipc.JobNoWait), Exclusive: has(ipc.JobExclusive), Any: has(ipc.JobAny), Emptiest: has(ipc.JobEmptiest),
		OnlyIfNone: has(ipc.JobOnlyIfNone), Claim: has(ipc.JobClaim), Priority: int(r.Priority), ContextsInside: has(jobContextsInside)}
	if request.Forever = r.WaitMillis == ipc.NoLimit; !request.Forever {
		request.Timeout = time.Duration(min(r.WaitMillis, maxWaitMillis)) * time.Millisecond
	}
	for _, index := range r.AskedFor[:min(r.Asked, statefile.MaxDevices)] {
		request.Devices = append(request.Devices, int(index))
	}
	return request
}

// jobKeyOf returns the key of a job in the history. It does not tell the token, which is a secret.
func jobKeyOf(token ipc.Token) string {
	sum := sha256.Sum256(token[:])
	return hex.EncodeToString(sum[:8])
}

// nameOf returns the name of a record's job; "": there is none, or the file is damaged.
func nameOf(r *statefile.Job) string {
	name := statefile.SecondOf(&r.Command)
	if ipc.CheckBindingName(name) != nil {
		return ""
	}
	return name
}

// maxWaitMillis is the longest wait, a hundred years: practically forever.
const maxWaitMillis = 100 * 365 * 24 * 3600 * 1000

// enterJobLocked adds a job to the daemon's tables.
func (d *Daemon) enterJobLocked(j *job) {
	if len(d.sessions)+len(d.jobs) == 0 {
		d.wakeReaders()
	}
	d.jobs[j.token], d.jobByID[j.id], d.jobByOrigin[j.jobOrigin] = j, j, j
	d.jobCounts.add(j.runner.PID, j.uid)
}

// commitJobLocked records what a job has got. From here on the job survives the daemon.
func (d *Daemon) commitJobLocked(j *job, info arbiter.JobInfo) {
	record := d.file.Jobs.At(j.index)
	record.Given = uint32(copy(record.Devices[:], d.recordedDevices(info.Devices)))
	record.SetSlotDevices(d.recordedDevices(info.Keeps))
	record.HeldSince = uint32(d.uptime() / time.Second)
	j.open = true
	j.budget = info.Budget
	d.file.Jobs.Commit(j.index)
	faults.At("job.committed")
}

// recordedDevices returns devices as a job's record has them.
func (d *Daemon) recordedDevices(indices []int) (all []statefile.JobDevice) {
	for _, index := range indices {
		if dev, ok := d.deviceByIndex(index); ok {
			all = append(all, statefile.JobDevice{UUID: dev.UUIDBytes, Index: uint32(index)})
		}
	}
	return all
}

// indicesOf returns the current indices of the devices in a job's record that still exist; nil for nil. The daemon that
// wrote the record may have had other indices: the UUID identifies a device, and the index one without a UUID.
func (d *Daemon) indicesOf(recorded []statefile.JobDevice) (indices []int) {
	if recorded != nil {
		indices = []int{}
	}
	for _, device := range recorded {
		dev, ok := d.deviceByUUID(device.UUID)
		if device.UUID == (ipc.UUID{}) {
			dev, ok = d.deviceByIndex(int(device.Index))
		}
		if ok {
			indices = append(indices, dev.Index)
		}
	}
	return indices
}

// watchJob watches the process on which a job depends. When that process ends, the daemon searches for another
// process of the job.
func (d *Daemon) watchJob(j *job, by procfacts.Started, pidfd int) error {
	return j.anchor.watch(d.reaper, by, pidfd, func() {
		switch {
		case d.jobs[j.token] != j || d.stopping():
		case j.open:
			d.commandEndedLocked(j, "")
			d.runnerEndedLocked(j)
		default:
			d.endRunnerLocked(j) // no program knows the job yet
		}
	})
}

// commandEndedLocked records that a job's command has ended. left names the process that it left running; "": not
// known.
func (d *Daemon) commandEndedLocked(j *job, left string) {
	if r := d.file.Jobs.At(j.index); r.Released == 0 {
		r.Released = jobCommandEnded
	}
	d.arb.CommandEnded(j.id, left)
}

// runnerEndedLocked handles the end of a job's runner or anchor process: it queues a search for another process.
func (d *Daemon) runnerEndedLocked(j *job) {
	d.unwatchRunnerLocked(j)
	d.queueSearchLocked(j)
}

// unwatchRunnerLocked stops watching the job's runner or anchor process.
func (d *Daemon) unwatchRunnerLocked(j *job) {
	j.anchor.unwatch(d.reaper)
	d.file.Jobs.At(j.index).RunnerPID = 0
}

// queueSearchLocked queues a job for the next search for its processes, unless the job has ended or has an anchor
// process or a session.
func (d *Daemon) queueSearchLocked(j *job) {
	if j.closed || j.bound != nil || j.anchor.PID != 0 || j.live > 0 || d.stopping() {
		return
	}
	if len(d.orphans.jobs) == 0 {
		d.orphans.done = make(chan struct{})
	}
	d.orphans.jobs[j] = struct{}{}
	signal(d.orphans.wake)
}

// endRunnerLocked closes a job: no more programs can be started in it. The job ends with its last session.
func (d *Daemon) endRunnerLocked(j *job) {
	if d.jobs[j.token] != j || j.closed {
		return
	}
	j.closed = true
	if j.bound != nil {
		d.keepAroundLocked(j)
		delete(d.bindings, j.bound.path)
		d.freeBindingLocked(j)
		signal(d.driver.wake)
	} else if j.open { // programs may know its token
		d.endedJobs.remember(j.token, endedJob{name: d.arb.JobName(j.id), claim: d.file.Jobs.At(j.index).Flags&ipc.JobClaim != 0, at: d.now()})
	}
	d.arb.CloseJob(d.now(), j.id)
	d.unwatchRunnerLocked(j)
	d.dropJobLocked(j)
}

// keepAroundLocked writes to the records of the jobs inside a closed binding that they stay inside it after a restart. For an open binding
// that is not needed: after a restart the jobs inside it are found by their cgroups.
func (d *Daemon) keepAroundLocked(closed *job) {
	for _, in := range d.jobs {
		if in.around == closed {
			d.noteAroundLocked(in)
		}
	}
}

// noteAroundLocked writes to a job's record which closed binding is around the job, or that there is none. A binding that was closed before
// the daemon started has a job without bound.
func (d *Daemon) noteAroundLocked(j *job) {
	r := d.file.Jobs.At(j.index)
	flags := r.Flags &^ jobAround
	if in := j.around; in != nil && (in.closed || in.bound == nil) {
		flags |= uint32(in.index+1) << jobAroundShift
	}
	r.Flags = flags
}

// closedAroundLocked returns the index of the job record of the closed binding that a job's record r names. It returns -1 if r names none,
// or if that record no longer belongs to the job of a cgroup.
func (d *Daemon) closedAroundLocked(r *statefile.Job) int {
	at := int(r.Flags&jobAround>>jobAroundShift) - 1
	if at < 0 || at >= statefile.MaxJobs || d.file.Jobs.At(at).Live != 1 || d.file.Jobs.At(at).Flags&jobBound == 0 {
		return -1
	}
	return at
}

// freeBindingLocked frees the record of the cgroup of a job. It comes before the job's record is freed or changed, so that
// a daemon that dies in between leaves no binding that was closed.
func (d *Daemon) freeBindingLocked(j *job) {
	if j.bound.row >= 0 {
		d.file.Bindings.Free(j.bound.row)
		j.bound.row = -1
		faults.At("binding.freed")
	}
}

// dropJobLocked removes a job from all tables if it is closed and has no sessions.
func (d *Daemon) dropJobLocked(j *job) {
	if !j.closed || len(j.members) > 0 || d.jobs[j.token] != j {
		return
	}
	d.arb.CloseJob(d.now(), j.id)
	d.file.Jobs.Free(j.index)
	faults.At("job.freed")
	if d.file.Jobs.At(j.index).Flags&jobBound != 0 { // jobs inside it are now inside the job around it
		for _, in := range d.jobs {
			if in.around == j {
				in.around = j.around
				d.noteAroundLocked(in)
			}
		}
	}
	delete(d.jobs, j.token)
	delete(d.jobByID, j.id)
	if d.jobByOrigin[j.jobOrigin] == j { // otherwise the runner has repeated the request, and the entry is the later job
		delete(d.jobByOrigin, j.jobOrigin)
	}
	d.jobCounts.drop(j.runner.PID, j.uid)
	d.dropLimitsLocked(rules.Owner{Kind: rules.OfJob, ID: uint64(j.id)})
}

// ownJobLocked returns the job with a token if the peer may end it.
func (d *Daemon) ownJobLocked(token ipc.Token, peer ipc.Peer) (*job, error) {
	j := d.jobs[token]
	if j == nil {
		return nil, refused(ipc.StatusNoSession, "no job has this token")
	}
	if !requesterOf(peer).owns(j.uid, j.namespace) {
		return nil, refused(ipc.StatusPermission, "the job is user %d's, this is user %d%s", j.uid, peer.UID, wording.NotRoot(peer.Namespace))
	}
	return j, nil
}

// jobOfLocked returns the job that a client says it belongs to. The job's token is a secret of its processes. The
// job's user and privileged peers may use it. Every user may use the token of a job of root, because a process of
// that job may have changed its user.
func (d *Daemon) jobOfLocked(token ipc.Token, peer ipc.Peer) (arbiter.JobID, error) {
	if token == (ipc.Token{}) {
		return 0, nil
	}
	j := d.jobs[token]
	if j == nil || j.closed && j.live == 0 {
		return 0, d.endedJobs.noJob(token, d.now())
	}
	if peer.UID != j.uid && !peer.Privileged && j.uid != 0 {
		return 0, refused(ipc.StatusPermission, "GPUARB_JOB names a job of user %d, this is user %d", j.uid, peer.UID)
	}
	return j.id, nil
}
