package daemon

// This file answers requests for jobs: `gpuarb run` and `gpuarb claim` open and close them. serve.go calls it.
// jobs.go has the life of a job in between.

import (
	"errors"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// jobOpen opens a job for the process at the other end. If the job must wait for its device, slot or reservation, the
// reply is sent when it has them.
func (cl *client) jobOpen(h ipc.Header, req ipc.JobOpenRequest) error {
	d, c := cl.d, cl.conn
	if req.Flags&ipc.JobNoWait != 0 {
		cl.awaitOrphans()
	}
	proc, err := d.facts(c)
	if err != nil {
		return err
	}
	if req.Flags&ipc.JobNoWait != 0 {
		record := jobRecord(&req, c.Peer(), proc)
		cl.awaitContexts(jobRequest(proc, &record))
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

// awaitContexts waits, for readingPatience at most, while a job that must begin at once lacks room only because of
// contexts that no reading has shown.
func (cl *client) awaitContexts(r arbiter.JobRequest) {
	d := cl.d
	for began := d.now(); ; {
		d.lock()
		device, awaits := d.arb.StartAwaits(r)
		d.unlock()
		left := readingPatience - d.now().Sub(began)
		if !awaits || left <= 0 {
			return
		}
		cl.turn.WhileReleased(func() { d.awaitReading(device, left) })
	}
}

// openJob opens a job, or parks the request for it.
func (d *Daemon) openJob(cl *client, h ipc.Header, r *ipc.JobOpenRequest, proc rules.Process) (rep ipc.JobOpenReply, waits bool, err error) {
	peer := cl.conn.Peer()
	cl.takeLock()
	defer d.unlock()
	var place arbiter.Place
	if r.Flags&ipc.JobRetry != 0 {
		var forget func()
		place, forget = d.takeAbsentLocked(peer, h)
		defer forget()
	}
	if j := d.jobOfRetry(peer, h, r); j != nil {
		j.repliedTo = cl
		cl.noteReceiptLocked(receipt{job: j})
		return d.openReplyLocked(j), false, nil
	}
	if err := d.checkJobLocked(peer, r); err != nil {
		return rep, false, err
	}
	if err := d.checkInsideLocked(r, d.bindingOfLocked(proc.Cgroups)); err != nil {
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
	d.commitJobLocked(j, info)
	j.repliedTo = cl
	cl.noteReceiptLocked(receipt{job: j})
	return d.openReplyLocked(j), false, nil
}

// checkJobLocked returns an error if a request for a job asks for more than the user may have or than any device has.
func (d *Daemon) checkJobLocked(peer ipc.Peer, r *ipc.JobOpenRequest) error {
	if r.Priority > 0 && !peer.Privileged {
		return refused(ipc.StatusPermission, "a priority of %d: only root may go above 0%s", r.Priority, wording.NotRoot(peer.Namespace))
	}
	if name := r.Command.Name(); strings.Contains(name, ":") && !peer.Privileged {
		return refused(ipc.StatusPermission, "the name %q has a colon, which only names of root's jobs may have: they tell containers and batch jobs%s", name, wording.NotRoot(peer.Namespace))
	}
	if err := d.checkJobDevicesLocked(r); err != nil {
		return err
	}
	for _, size := range []*accounting.Size{optionalSize(r.Memory, r.MemoryShare), optionalSize(r.Min, r.MinShare)} {
		if size == nil {
			continue
		}
		if err := d.fitsSomeDeviceLocked(*size, r); err != nil {
			return err
		}
	}
	return d.jobCounts.full(peer.PID, peer.UID, peer.Privileged)
}

// checkInsideLocked returns an error if a program in the job of a cgroup asks for a higher priority than that job, and the
// jobs around it, allow. The arbiter checks claims and reservations.
func (d *Daemon) checkInsideLocked(r *ipc.JobOpenRequest, around *job) error {
	switch {
	case around == nil:
		return nil
	case !around.open:
		return refused(ipc.StatusPermission, "the job of cgroup %s still waits for its reservation: start the program when it has it", around.bound.path)
	}
	for ; r.Priority > 0 && around != nil; around = around.around {
		if around.bound.allows&ipc.BindAllowPriority == 0 {
			return refused(ipc.StatusPermission, "a priority of %d: inside %s it may not be raised (its opener can allow it: `gpuarb job open --allow priority`)", r.Priority, d.arb.JobName(around.id))
		}
	}
	return nil
}

// checkJobDevicesLocked checks the devices that a request names or needs. The processor is not a GPU: a request for
// any device does not get it. An older gpuarb does not know the processor as a device, so that its requests do not get
// it either.
func (d *Daemon) checkJobDevicesLocked(r *ipc.JobOpenRequest) error {
	named, needsGPU := r.Device[:r.Devices], ipc.JobAny|ipc.JobClaim|ipc.JobEmptiest
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
		case r.Flags&(ipc.JobAny|ipc.JobClaim|ipc.JobEmptiest) != 0:
			return refused(ipc.StatusNoDevice, "the processor is no GPU and cannot be claimed")
		case r.Flags&ipc.JobProcessor == 0:
			return refused(ipc.StatusNoDevice, "the processor was asked for by a gpuarb that does not know it: use one as new as its daemon")
		}
	}
	return nil
}

// fitsSomeDeviceLocked refuses a budget that is larger than every device, because a budget that limits nothing is a
// mistake. The processor counts only if the request names it.
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
		return nil // no device, or no device with a known size
	}
	return refused(ipc.StatusRange, "a budget of %d bytes is larger than the largest device, which has %d: "+
		"`gpuarb devices` lists them", budget.Of(largest), largest)
}

// addJobLocked adds a job to the arbiter and the reaper, and writes its record. Until commitJobLocked commits it, the
// record counts as free. The next daemon uses it only for a request that still waits (recoverqueue.go).
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
		return nil, none, refused(ipc.StatusTooMany, "%d jobs are open, the most of all users: end some (`gpuarb jobs` lists them)", statefile.MaxJobs)
	}
	*record = jobRecord(r, peer, proc)
	record.Token, record.Request = ipc.NewToken(), h.Request
	request := jobRequest(proc, record)
	around := d.bindingOfLocked(proc.Cgroups)
	request.Command, request.Place, request.Around = r.Command.String(), place, idOf(around)
	info, err := d.arb.OpenJob(d.now(), request)
	if err != nil {
		d.file.Jobs.Free(index)
		closeFD(pidfd)
		return nil, none, err
	}
	record.ID = uint64(info.ID)
	faults.At("job.opened")
	j := newJob(index, record)
	j.namespace, j.around = peer.Namespace, around
	if err := d.watchJob(j, j.runner, pidfd); err != nil {
		d.arb.CloseJob(d.now(), j.id)
		d.file.Jobs.Free(index)
		return nil, none, err
	}
	d.enterJobLocked(j)
	return j, info, nil
}

// jobRecord returns the record of the job that a request asks for, without its token.
func jobRecord(r *ipc.JobOpenRequest, peer ipc.Peer, proc rules.Process) statefile.Job {
	record := statefile.Job{Run: 1, UID: peer.UID, GID: peer.GID,
		Flags: r.Flags &^ ipc.JobProcessor, Streams: r.Streams, Max: r.Memory, MaxPerMille: r.MemoryShare, Min: r.Min, MinPerMille: r.MinShare,
		WaitMillis: r.WaitMillis, Priority: r.Priority, RunnerPID: uint32(peer.PID), RunnerStart: proc.StartTicks,
		Asked: r.Devices, AskedFor: r.Device}
	statefile.SetTexts(&record.Command, r.Command.String(), r.Command.Name())
	return record
}

// jobOfRetry returns the job that an earlier copy of a repeated request has opened, whose reply was lost.
func (d *Daemon) jobOfRetry(peer ipc.Peer, h ipc.Header, r *ipc.JobOpenRequest) *job {
	if r.Flags&ipc.JobRetry == 0 {
		return nil
	}
	if j := d.jobByOrigin[jobOrigin{startedOf(peer), h.Request}]; j != nil && j.open && !j.closed {
		return j
	}
	return nil
}

// openReplyLocked returns the reply to the runner of an open job.
func (d *Daemon) openReplyLocked(j *job) ipc.JobOpenReply {
	record := d.file.Jobs.At(j.index)
	rep := ipc.JobOpenReply{Job: j.token, ID: uint64(j.id), Budget: uint64(j.budget)}
	for _, index := range d.indicesOf(record.GivenDevices()) {
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

// jobDecidedLocked applies the decision for a job that waited.
func (cl *client) jobDecidedLocked(h ipc.Header, j *job, dec arbiter.Result) (receipt, func() error) {
	d := cl.d
	if dec.Job == nil || d.jobs[j.token] != j {
		d.endRunnerLocked(j)
		if dec.Granted {
			dec = arbiter.Result{Reason: arbiter.ReasonCancelled, Explain: "the job has ended"}
		}
		return receipt{}, func() error { return cl.replyJobRefusal(h, &dec) }
	}
	d.commitJobLocked(j, *dec.Job)
	j.repliedTo = cl
	rep := d.openReplyLocked(j)
	return receipt{job: j}, func() error { return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1) }
}

// replyJobRefusal sends the runner the reason for the refusal of its job.
func (cl *client) replyJobRefusal(h ipc.Header, r *arbiter.Result) error {
	rep := ipc.JobOpenReply{Text: ipc.MakeText(r.Explain)}
	if r.Reason == arbiter.ReasonCrowded {
		rep.Budget = patienceMillis(r.Patience)
	}
	return reply(cl, h, arbiter.Result{Reason: r.Reason, Explain: r.Explain}, &rep)
}

// exited notes how the command of a job has ended, for the history. Only processes of the job's own user and of root
// may say it.
func (cl *client) exited(r *ipc.ExitedRequest) (ipc.Empty, error) {
	cl.takeLock()
	defer cl.d.unlock()
	j, err := cl.d.ownJobLocked(r.Job, cl.conn.Peer())
	if err == nil {
		cl.d.arb.CommandExited(j.id, arbiter.Exit{Code: int(r.Code), Signal: int(r.Signal)})
	}
	return ipc.Empty{}, err
}

// jobClose releases the job's reservation and devices. Programs of the job keep what they use. If the runner sends the
// request, the runner counts as ended: the job then ends with its last process.
func (cl *client) jobClose(r *ipc.JobCloseRequest) (ipc.Empty, error) {
	d, peer := cl.d, cl.conn.Peer()
	cl.takeLock()
	defer d.unlock()
	j, err := d.ownJobLocked(r.Job, peer)
	if err != nil {
		return ipc.Empty{}, err
	}
	d.arb.ReleaseJob(d.now(), j.id)
	d.file.Jobs.At(j.index).Released = jobReleased
	if j.anchor.Started == startedOf(peer) {
		d.runnerEndedLocked(j)
	}
	return ipc.Empty{}, nil
}
