package daemon

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/statefile"
)

// jobKey marks a reaper's key as a job's: session numbers never get this high.
const jobKey = 1 << 63

// job is what one `gpuarb run` opened. It lasts as long as the runner or any of
// its processes lives; the runner is watched by its pidfd, so that it outlives
// a restart of the daemon without a word.
type job struct {
	id       arbiter.JobID
	token    ipc.Token
	pid      int // of the runner
	uid      uint32
	index    int // of its record
	pidfd    int
	sessions int
	closed   bool // the runner is dead
}

// openJob opens a job for the process at the other end.
func (d *Daemon) openJob(c *ipc.Conn, r ipc.JobOpenRequest) (ipc.JobOpenReply, error) {
	peer := c.Peer()
	proc, err := d.facts(peer)
	if err != nil {
		return ipc.JobOpenReply{}, err
	}
	req := arbiter.JobRequest{Process: proc, Streams: int(r.Streams), PerProcess: r.Flags&ipc.JobPerProcess != 0,
		Command: r.Command.String(), Max: wishes(ipc.HelloRequest{Memory: r.Memory, Share: r.MemoryShare})}
	d.mu.Lock()
	defer d.mu.Unlock()
	if req.Max != nil {
		if err := d.fitsSomeDevice(*req.Max); err != nil {
			return ipc.JobOpenReply{}, err
		}
	}
	if err := d.jobsOf.full("jobs", peer.PID, uint32(peer.UID), jobsPerProcess, jobsPerUser); err != nil {
		return ipc.JobOpenReply{}, err
	}
	pidfd := c.TakePIDFD()
	if pidfd < 0 {
		return ipc.JobOpenReply{}, refused(ipc.StatusOrder, "this connection opened a job or a session: a job needs one of its own")
	}
	index, record, err := d.file.Jobs.New()
	if err != nil {
		closeFD(pidfd)
		return ipc.JobOpenReply{}, refused(ipc.StatusTooMany, "%d jobs are open: no room for another", statefile.MaxJobs)
	}
	info, err := d.arb.OpenJob(time.Now(), req)
	if err != nil {
		d.file.Jobs.Free(index)
		closeFD(pidfd)
		return ipc.JobOpenReply{}, err
	}
	j := &job{id: info.ID, token: ipc.NewToken(), pid: peer.PID, uid: uint32(peer.UID), index: index}
	*record = statefile.Job{Run: 1, ID: uint64(j.id), Token: j.token, UID: j.uid, GID: uint32(peer.GID),
		PerProcess: r.Flags & ipc.JobPerProcess, Streams: r.Streams, Max: r.Memory, MaxPerMille: r.MemoryShare,
		RunnerPID: uint32(peer.PID), RunnerStart: proc.StartTicks}
	statefile.SetText(&record.Command, req.Command)
	if err := d.watchJob(j, pidfd); err != nil {
		d.arb.CloseJob(time.Now(), j.id)
		d.file.Jobs.Free(index)
		return ipc.JobOpenReply{}, err
	}
	d.file.Jobs.Commit(index)
	d.knownJob(j)
	d.drainEvents()
	return ipc.JobOpenReply{Job: j.token, ID: uint64(j.id), Budget: uint64(info.Budget)}, nil
}

// watchJob has the reaper wait for the runner's death. The job owns the pidfd
// from here on.
func (d *Daemon) watchJob(j *job, pidfd int) error {
	if err := d.reaper.Add(pidfd, uint64(j.id)|jobKey); err != nil {
		closeFD(pidfd)
		return fmt.Errorf("pidfd of the runner: %w", err)
	}
	j.pidfd = pidfd
	return nil
}

// fitsSomeDevice refuses a budget that is larger than every device: a budget
// that limits nothing is a mistake. The lock is held.
func (d *Daemon) fitsSomeDevice(budget arbiter.Size) error {
	var largest accounting.Bytes
	for _, dev := range d.inv.Devices() {
		largest = max(largest, usable(dev))
		if budget.Of(usable(dev)) <= usable(dev) {
			return nil
		}
	}
	if largest == 0 {
		return nil // no device, or none that tells its size
	}
	return refused(ipc.StatusRange, "a budget of %d bytes is larger than the largest device, which has %d: "+
		"`gpuarb devices` lists them", budget.Of(largest), largest)
}

// closeJob is for a job whose runner is dead. It ends with its last process. The
// lock is held.
func (d *Daemon) closeJob(key uint64) {
	j := d.jobByKey[key]
	if j == nil || d.stopping {
		return
	}
	d.arb.CloseJob(time.Now(), j.id)
	j.closed = true
	d.reaper.Remove(key)
	d.file.Jobs.At(j.index).RunnerPID = 0
	d.dropJob(j)
}

// knownJob enters a job wherever it is looked for. The lock is held.
func (d *Daemon) knownJob(j *job) {
	d.jobs[j.token], d.jobByKey[uint64(j.id)|jobKey] = j, j
	d.jobsOf.add(j.pid, j.uid)
}

// dropJob forgets a job if it is closed and without processes. The lock is held.
func (d *Daemon) dropJob(j *job) {
	if !j.closed || j.sessions > 0 || d.jobs[j.token] != j {
		return
	}
	d.arb.CloseJob(time.Now(), j.id)
	closeFD(j.pidfd)
	d.file.Jobs.Free(j.index)
	delete(d.jobs, j.token)
	delete(d.jobByKey, uint64(j.id)|jobKey)
	d.jobsOf.drop(j.pid, j.uid)
}

// jobOf finds the job that a client says it belongs to. Its token is a secret of
// the job's processes; only the job's user (or root) may use it. The lock is held.
func (d *Daemon) jobOf(token ipc.Token, peer ipc.Peer) (id arbiter.JobID, run bool, err error) {
	if token == (ipc.Token{}) {
		return 0, false, nil
	}
	j := d.jobs[token]
	if j == nil {
		return 0, false, refused(ipc.StatusNoSession, "GPUARB_JOB names no job of this daemon: "+
			"start the program through `gpuarb run`, or without that variable")
	}
	if uint32(peer.UID) != j.uid && peer.UID != 0 && j.uid != 0 {
		return 0, false, refused(ipc.StatusPermission, "GPUARB_JOB names a job of user %d, this is user %d", j.uid, peer.UID)
	}
	return j.id, true, nil
}
