package daemon

import (
	"errors"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/faults"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/gpuarb/gpuarb/statefile"
)

// mostJobs is above the number of any job that there was: a record with a higher one is damaged.
const mostJobs = 1 << 62

// jobOrigin is a runner's request for a job, by the number that it gave it.
type jobOrigin struct {
	runner  procfacts.Started
	request uint64
}

// job is what one `gpuarb run` opened. It lasts as long as the runner or any of
// its processes lives, whether that has connected or not: see remain.go. The runner is
// watched by its pidfd, so that the job outlives a restart of the daemon without a word.
type job struct {
	id    arbiter.JobID
	token ipc.Token
	jobOrigin
	uid uint32
	// namespace is ipc.Peer.Namespace of the runner.
	namespace uint64
	told      *client // whom the last reply with it went to
	index     int     // of its record
	by        watched // what it lives by: the runner, then another process of it
	members   map[*session]struct{}
	live      int  // members that have not ended
	open      bool // it holds what it was to hold, and its runner was told, or will be
	closed    bool // nothing of it lives but its members
	budget    accounting.Bytes
}

// jobOpen opens a job for the process at the other end. One that has to wait for its
// device, slot or reservation is answered when it has them.
func (cl *client) jobOpen(h ipc.Header, req ipc.JobOpenRequest) error {
	d, c := cl.d, cl.conn
	if req.Flags&ipc.JobNoWait != 0 {
		cl.othersEnded()
	}
	proc, err := d.facts(c)
	if err != nil {
		return err
	}
	rep, waits, err := d.openJob(cl, h, &req, proc)
	var refusal *arbiter.Result
	switch {
	case errors.As(err, &refusal):
		return cl.replyJobRefusal(h, refusal)
	case err != nil, waits:
		return err
	}
	return ipc.Reply(c, h, ipc.StatusOK, &rep, -1)
}

// openJob opens a job, or parks the request for one.
func (d *Daemon) openJob(cl *client, h ipc.Header, r *ipc.JobOpenRequest, proc rules.Process) (rep ipc.JobOpenReply, waits bool, err error) {
	peer := cl.conn.Peer()
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	var place arbiter.Place
	if r.Flags&ipc.JobRetry != 0 {
		var forget func()
		place, forget = d.returnsLocked(peer, h)
		defer forget()
	}
	if j := d.openedBefore(peer, h, r); j != nil {
		j.told = cl
		cl.gaveLocked(receipt{job: j})
		return d.openedLocked(j), false, nil
	}
	if err := d.mayOpenLocked(peer, r); err != nil {
		return rep, false, err
	}
	j, info, err := d.addJobLocked(cl.conn, h, r, proc, place)
	if err != nil {
		return rep, false, err
	}
	if info.Waiting != 0 {
		d.parkLocked(cl, "", h, info.Waiting, func(dec arbiter.Result) (receipt, func() error) { return cl.jobDecidedLocked(h, j, dec) })
		return rep, true, nil
	}
	d.holdJobLocked(j, info)
	j.told = cl
	cl.gaveLocked(receipt{job: j})
	return d.openedLocked(j), false, nil
}

// mayOpenLocked checks what a request for a job may not ask for.
func (d *Daemon) mayOpenLocked(peer ipc.Peer, r *ipc.JobOpenRequest) error {
	if r.Priority > 0 && !peer.Privileged {
		return refused(ipc.StatusPermission, "a priority of %d: only root may go above 0%s", r.Priority, wording.NotRoot(peer.Namespace))
	}
	if err := d.mayHaveDevicesLocked(r); err != nil {
		return err
	}
	for _, size := range []*accounting.Size{sizeWish(r.Memory, r.MemoryShare), sizeWish(r.Min, r.MinShare)} {
		if size == nil {
			continue
		}
		if err := d.fitsSomeDeviceLocked(*size, r); err != nil {
			return err
		}
	}
	return d.jobsOf.full(peer.PID, peer.UID, peer.Privileged)
}

// mayHaveDevicesLocked checks the devices that a request names, or that it needs there to be. The processor is no GPU: whoever
// asks for any device is not given it, nor who does not know it yet.
func (d *Daemon) mayHaveDevicesLocked(r *ipc.JobOpenRequest) error {
	named, needsGPU := r.Device[:r.Devices], ipc.JobAny|ipc.JobClaim
	reserves := r.Min != 0 && r.Min != ipc.NoLimit || r.MinShare != 0
	if len(named) == 0 {
		needsGPU |= ipc.JobExclusive
	}
	if (r.Flags&needsGPU != 0 || len(named) == 0 && reserves) && !slices.ContainsFunc(d.devices(), isGPU) {
		return refused(ipc.StatusNoDevice, "the daemon knows no GPU on this machine; `gpuarb doctor` says why")
	}
	for _, index := range named {
		dev, ok := d.deviceByIndex(int(index))
		switch {
		case !ok && index == accounting.ProcessorIndex:
			return refused(ipc.StatusNoDevice, "the processor is no device here: the daemon found neither PoCL (OpenCL) nor lavapipe (Vulkan) when it started")
		case !ok:
			return refused(ipc.StatusNoDevice, "there is no GPU %d: `gpuarb devices` lists them", index)
		case isGPU(dev):
		case r.Flags&(ipc.JobAny|ipc.JobClaim) != 0:
			return refused(ipc.StatusNoDevice, "the processor is no GPU and cannot be claimed")
		case r.Flags&ipc.JobProcessor == 0:
			return refused(ipc.StatusNoDevice, "the processor was asked for by a gpuarb that does not know it: use one as new as its daemon")
		}
	}
	return nil
}

// addJobLocked makes a job known to the arbiter and the reaper, and writes its record, which
// counts from holdJobLocked on.
func (d *Daemon) addJobLocked(c *ipc.Conn, h ipc.Header, r *ipc.JobOpenRequest, proc rules.Process,
	place arbiter.Place) (*job, arbiter.JobInfo, error) {
	var none arbiter.JobInfo
	peer := c.Peer()
	pidfd := c.TakePIDFD()
	if pidfd < 0 {
		return nil, none, refused(ipc.StatusOrder, "this connection opened a job, or belongs to a session: a job needs one of its own")
	}
	index, record, err := d.file.Jobs.New()
	if err != nil {
		closeFD(pidfd)
		return nil, none, refused(ipc.StatusTooMany, "%d jobs are open: no room for another", statefile.MaxJobs)
	}
	*record = statefile.Job{Run: 1, Token: ipc.NewToken(), UID: peer.UID, GID: peer.GID,
		Flags: r.Flags &^ ipc.JobProcessor, Streams: r.Streams, Max: r.Memory, MaxPerMille: r.MemoryShare, Min: r.Min, MinPerMille: r.MinShare,
		WaitMillis: r.WaitMillis, Priority: r.Priority, RunnerPID: uint32(peer.PID), RunnerStart: proc.StartTicks,
		Request: h.Request, Asked: r.Devices, AskedFor: r.Device}
	statefile.SetTexts(&record.Command, r.Command.String(), r.Command.Name())
	request := jobRequest(proc, record)
	request.Command, request.Place = r.Command.String(), place
	info, err := d.arb.OpenJob(d.now(), request)
	if err != nil {
		d.file.Jobs.Free(index)
		closeFD(pidfd)
		return nil, none, err
	}
	record.ID = uint64(info.ID)
	faults.At("job.opened")
	j := newJob(index, record)
	j.namespace = peer.Namespace
	if err := d.watchJob(j, j.runner, pidfd); err != nil {
		d.arb.CloseJob(d.now(), j.id)
		d.file.Jobs.Free(index)
		return nil, none, err
	}
	d.knownJobLocked(j)
	return j, info, nil
}

// newJob is the job of a record. Nobody knows it yet.
func newJob(index int, r *statefile.Job) *job {
	return &job{members: map[*session]struct{}{}, id: arbiter.JobID(r.ID), token: r.Token,
		jobOrigin: jobOrigin{procfacts.Started{PID: int(r.RunnerPID), StartTicks: r.RunnerStart}, r.Request}, uid: r.UID, index: index, by: watched{pidfd: -1}}
}

// jobRequest is a record's request, as the arbiter takes it.
func jobRequest(proc rules.Process, r *statefile.Job) arbiter.JobRequest {
	has := func(flag uint32) bool { return r.Flags&flag != 0 }
	request := arbiter.JobRequest{Process: proc, Max: sizeWish(r.Max, r.MaxPerMille), Min: sizeWish(r.Min, r.MinPerMille),
		Streams: int(r.Streams), PerProcess: has(ipc.JobPerProcess), Command: statefile.TextOf(&r.Command), Name: nameOf(r),
		Wait: has(ipc.JobWait), NoWait: has(ipc.JobNoWait), Exclusive: has(ipc.JobExclusive), Any: has(ipc.JobAny),
		OnlyIfNone: has(ipc.JobOnlyIfNone), Claim: has(ipc.JobClaim), Priority: int(r.Priority)}
	if request.Forever = r.WaitMillis == ipc.NoLimit; !request.Forever {
		request.Timeout = time.Duration(min(r.WaitMillis, maxWaitMillis)) * time.Millisecond
	}
	for _, index := range r.AskedFor[:min(r.Asked, statefile.MaxDevices)] {
		request.Devices = append(request.Devices, int(index))
	}
	return request
}

// nameOf is the name of a record's job. The file may have been damaged.
func nameOf(r *statefile.Job) string {
	name := statefile.SecondOf(&r.Command)
	if ipc.CheckName(name) != nil {
		return ""
	}
	return name
}

// maxWaitMillis is a wait so long that it makes no difference: a hundred years.
const maxWaitMillis = 100 * 365 * 24 * 3600 * 1000

// holdJobLocked is for a job that has got what it waited for: from here on it outlives the
// daemon.
func (d *Daemon) holdJobLocked(j *job, info arbiter.JobInfo) {
	record := d.file.Jobs.At(j.index)
	record.Given = 0
	for _, index := range info.Devices {
		if dev, ok := d.deviceByIndex(index); ok && record.Given < statefile.MaxDevices {
			record.Devices[record.Given] = statefile.JobDevice{UUID: dev.UUIDBytes, Index: uint32(index)}
			record.Given++
		}
	}
	record.HeldSince = uint32(d.uptime() / time.Second)
	j.open = true
	j.budget = info.Budget
	d.file.Jobs.Commit(j.index)
	faults.At("job.committed")
}

// devicesOf is the indices of the devices that a job was given, as they are now.
func (d *Daemon) devicesOf(r *statefile.Job) (indices []int) {
	for _, given := range r.Devices[:min(r.Given, statefile.MaxDevices)] {
		dev, ok := d.deviceByUUID(given.UUID)
		if !ok {
			dev, ok = d.deviceByIndex(int(given.Index))
		}
		if ok {
			indices = append(indices, dev.Index)
		}
	}
	return indices
}

// openedBefore is the job of a request that comes again because its answer was lost.
func (d *Daemon) openedBefore(peer ipc.Peer, h ipc.Header, r *ipc.JobOpenRequest) *job {
	if r.Flags&ipc.JobRetry == 0 {
		return nil
	}
	if j := d.jobByOrigin[jobOrigin{startedOf(peer), h.Request}]; j != nil && j.open && !j.closed {
		return j
	}
	return nil
}

// openedLocked is what the runner of an open job is told.
func (d *Daemon) openedLocked(j *job) ipc.JobOpenReply {
	record := d.file.Jobs.At(j.index)
	rep := ipc.JobOpenReply{Job: j.token, ID: uint64(j.id), Budget: uint64(j.budget)}
	for _, index := range d.devicesOf(record) {
		dev, _ := d.deviceByIndex(index)
		rep.Device[rep.Devices] = ipc.JobDevice{Index: uint32(index), Vendor: ipc.Vendors[dev.Vendor],
			Ordinal: uint32(dev.Ordinal), UUID: dev.UUIDBytes}
		if dev.Parent != "" {
			rep.Device[rep.Devices].Kind = ipc.JobDeviceMIG
		}
		rep.Devices++
	}
	if d.arb.NoExports(j.id) {
		rep.Text = ipc.MakeText(ipc.BuildNoExports)
	}
	return rep
}

// jobDecidedLocked carries out what became of a job that waited.
func (cl *client) jobDecidedLocked(h ipc.Header, j *job, dec arbiter.Result) (receipt, func() error) {
	d := cl.d
	if dec.Job == nil || d.jobs[j.token] != j {
		d.endRunnerLocked(j)
		if dec.Granted {
			dec = arbiter.Result{Reason: arbiter.ReasonCancelled, Explain: "the job has ended"}
		}
		return receipt{}, func() error { return cl.replyJobRefusal(h, &dec) }
	}
	d.holdJobLocked(j, *dec.Job)
	j.told = cl
	rep := d.openedLocked(j)
	return receipt{job: j}, func() error { return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1) }
}

// replyJobRefusal tells the runner why it has no job.
func (cl *client) replyJobRefusal(h ipc.Header, r *arbiter.Result) error {
	rep := ipc.JobOpenReply{Text: ipc.MakeText(r.Explain)}
	if r.Reason == arbiter.ReasonCrowded {
		rep.Budget = patienceMillis(r.Patience)
	}
	return reply(cl, h, arbiter.Result{Reason: r.Reason, Explain: r.Explain}, &rep)
}

// jobClose gives back what a job holds beyond its processes. From its runner it is the
// runner's leave, too: what is inside goes on, and the job ends with the last of it.
func (cl *client) jobClose(r *ipc.JobCloseRequest) (ipc.Empty, error) {
	d, peer := cl.d, cl.conn.Peer()
	d.lock()
	defer d.unlock()
	cl.applyLocked()
	j, err := d.ownJobLocked(r.Job, peer)
	if err != nil {
		return ipc.Empty{}, err
	}
	d.arb.ReleaseJob(d.now(), j.id)
	d.file.Jobs.At(j.index).Released = jobReleased
	if j.by.Started == startedOf(peer) {
		d.runnerEndedLocked(j)
	}
	return ipc.Empty{}, nil
}

// fitsSomeDeviceLocked refuses a budget that is larger than every device: a budget
// that limits nothing is a mistake. The processor counts for those who name it.
func (d *Daemon) fitsSomeDeviceLocked(budget accounting.Size, r *ipc.JobOpenRequest) error {
	var largest accounting.Bytes
	for _, dev := range d.devices() {
		if !isGPU(dev) && !slices.Contains(r.Device[:r.Devices], uint32(dev.Index)) {
			continue
		}
		total := d.arb.Total(dev.Index)
		largest = max(largest, total)
		if budget.Of(total) <= total {
			return nil
		}
	}
	if largest == 0 {
		return nil // no device, or none that tells its size
	}
	return refused(ipc.StatusRange, "a budget of %d bytes is larger than the largest device, which has %d: "+
		"`gpuarb devices` lists them", budget.Of(largest), largest)
}

// watchJob has a job live by a process, until the last of the job's has ended.
func (d *Daemon) watchJob(j *job, by procfacts.Started, pidfd int) error {
	return j.by.watch(d.reaper, by, pidfd, func() {
		switch {
		case d.jobs[j.token] != j || d.stopping():
		case j.open:
			d.commandEndedLocked(j, "")
			d.runnerEndedLocked(j)
		default:
			d.endRunnerLocked(j) // no program was told of it
		}
	})
}

// endRunnerLocked is for a job that nobody can start programs in any more.
func (d *Daemon) endRunnerLocked(j *job) {
	if d.jobs[j.token] != j || j.closed {
		return
	}
	j.closed = true
	if j.open { // programs were told of it
		d.endedJobs.remember(j.token, endedJob{name: d.arb.JobName(j.id), claim: d.file.Jobs.At(j.index).Flags&ipc.JobClaim != 0, at: d.now()})
	}
	d.arb.CloseJob(d.now(), j.id)
	d.letRunnerGoLocked(j)
	d.dropJobLocked(j)
}

// knownJobLocked enters a job wherever it is looked for.
func (d *Daemon) knownJobLocked(j *job) {
	if len(d.sessions)+len(d.jobs) == 0 {
		d.wakeReaders()
	}
	d.jobs[j.token], d.jobByID[j.id], d.jobByOrigin[j.jobOrigin] = j, j, j
	d.jobsOf.add(j.runner.PID, j.uid)
}

// dropJobLocked forgets a job if it is closed and without processes.
func (d *Daemon) dropJobLocked(j *job) {
	if !j.closed || len(j.members) > 0 || d.jobs[j.token] != j {
		return
	}
	d.arb.CloseJob(d.now(), j.id)
	d.file.Jobs.Free(j.index)
	faults.At("job.freed")
	delete(d.jobs, j.token)
	delete(d.jobByID, j.id)
	if d.jobByOrigin[j.jobOrigin] == j { // else that of another of the runner's connections
		delete(d.jobByOrigin, j.jobOrigin)
	}
	d.jobsOf.drop(j.runner.PID, j.uid)
	d.dropLimitsLocked(rules.Owner{Kind: rules.OfJob, ID: uint64(j.id)})
}

// ownJobLocked finds a job that is the peer's to end.
func (d *Daemon) ownJobLocked(token ipc.Token, peer ipc.Peer) (*job, error) {
	j := d.jobs[token]
	if j == nil {
		return nil, refused(ipc.StatusNoSession, "no job has this token")
	}
	if !askerOf(peer).owns(j.uid, j.namespace) {
		return nil, refused(ipc.StatusPermission, "the job is user %d's, this is user %d%s", j.uid, peer.UID, wording.NotRoot(peer.Namespace))
	}
	return j, nil
}

// jobOfLocked finds the job that a client says it belongs to. Its token is a secret of
// the job's processes. The job's user and privileged peers may use it; the token of a job of root's may be used by every user, because
// a process of the job may have become another user.
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
