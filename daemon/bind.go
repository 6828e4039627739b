package daemon

// This file opens and closes jobs of cgroups (bindings) on request, as `gpuarb job open` and `gpuarb job close` send it. bindings.go
// finds the processes of such jobs. It also closes the jobs whose cgroup is gone or idle. jobopen.go opens jobs of programs.

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
	"github.com/gpuarb/gpuarb/internal/faults"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
)

// bind opens the job of a cgroup. If the job must wait for its reservation, the reply is sent when the job has it.
func (cl *client) bind(h ipc.Header, req ipc.BindRequest) error {
	d, peer := cl.d, cl.conn.Peer()
	if !peer.Privileged {
		return refused(ipc.StatusPermission, "only root may open the job of a cgroup%s", wording.NotRoot(peer.Namespace))
	}
	if req.Job.Flags&ipc.JobNoWait != 0 {
		cl.awaitOrphans()
	}
	at, err := locateCgroup(req.Cgroup.String())
	if err != nil {
		return err
	}
	at.until, at.idle, at.used = req.Until, time.Duration(req.IdleMillis)*time.Millisecond, d.now()
	at.lossOpen, at.contexts, at.container = req.Flags&ipc.BindLossOpen != 0, req.Flags&ipc.BindContextsInside != 0, req.Container.String()
	at.allows = req.Flags & ipc.BindAllowsAll
	// First close a binding with this cgroup or this name if its folder is gone. The request would be refused because of that binding.
	d.checkBindings(append(d.cgroupsNamed(req.Name.String()), at.path)...)
	proc := rules.Process{UID: peer.UID, GID: peer.GID, User: d.inv.UserName(peer.UID), Privileged: true, Namespace: peer.Namespace,
		Command: req.Job.Command.String(), Cgroup: at.path}
	if req.Job.Flags&ipc.JobNoWait != 0 {
		record := bindingRecord(&req, proc.UID, proc.GID, ipc.Token{})
		request := jobRequest(proc, &record)
		request.OpenNow = true
		cl.awaitContexts(request)
	}
	rep, waits, err := d.openBinding(cl, h, &req, at, proc)
	var refusal *arbiter.Result
	switch {
	case errors.As(err, &refusal):
		return cl.replyJobRefusal(h, refusal)
	case err != nil, waits:
		return err
	}
	return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1)
}

// openBinding opens the job of the cgroup at. If waits is true, the job waits for its reservation, and bindDecidedLocked replies later.
func (d *Daemon) openBinding(cl *client, h ipc.Header, r *ipc.BindRequest, at *binding, proc rules.Process) (rep ipc.JobOpenReply, waits bool, err error) {
	own, err := procfacts.Here.Cgroups(cl.conn.Peer().PID)
	if err != nil {
		return rep, false, err
	}
	cl.takeLock()
	defer d.unlock()
	var place arbiter.Place
	if r.Job.Flags&ipc.JobRetry != 0 {
		var forget func()
		place, forget = d.takeAbsentLocked(cl.conn.Peer(), h)
		defer forget()
	}
	if j, err := d.sameBindingLocked(r, at); err != nil {
		return rep, false, err
	} else if j != nil {
		return d.bindReplyLocked(j), false, nil
	}
	if err := d.checkBindingLocked(cl, r, at, own); err != nil {
		return rep, false, err
	}
	j, info, err := d.addBindingLocked(cl.conn.Peer(), h, r, at, proc, place)
	if err != nil {
		return rep, false, err
	}
	if info.Waiting != 0 {
		d.parkLocked(cl, "", h, info.Waiting, func(dec arbiter.Result) (receipt, func() error) { return cl.bindDecidedLocked(h, j, dec) })
		return rep, true, nil
	}
	d.commitBindingLocked(j, info)
	j.repliedTo = cl
	cl.noteReceiptLocked(receipt{job: j})
	return d.bindReplyLocked(j), false, nil
}

// sameBindingLocked returns the job that the cgroup of a request has already, so that an opener may repeat its request. It
// returns nil if the cgroup has no job. It returns an error if the job has other options than the request, or still waits.
func (d *Daemon) sameBindingLocked(r *ipc.BindRequest, at *binding) (*job, error) {
	j := d.bindings[at.path]
	if j == nil {
		return nil, nil
	}
	is, b, name := d.file.Jobs.At(j.index), j.bound, r.Name.String()
	switch {
	case !j.open:
		return nil, refused(ipc.StatusBusy, "the job %s of cgroup %s is being opened, and waits for its reservation: try again later, or close it (gpuarb job close --cgroup %s)",
			nameOf(is), at.path, at.path)
	case nameOf(is) != name && b.container != "" && b.container == at.container:
		return nil, refused(ipc.StatusRange, "container %s has the job %s already: give a container one device of gpuarb, or one claim, not two", b.container, nameOf(is))
	case nameOf(is) != name:
		return nil, refused(ipc.StatusRange, "cgroup %s has the job %s: close that one first (gpuarb job close --cgroup %s)", at.path, nameOf(is), at.path)
	}
	want := bindingRecord(r, is.UID, is.GID, is.Token)
	if want.Max != is.Max || want.MaxPerMille != is.MaxPerMille || want.Min != is.Min || want.MinPerMille != is.MinPerMille ||
		want.Streams != is.Streams || want.Priority != is.Priority || (want.Flags^is.Flags)&jobRequested != 0 || want.Asked != is.Asked || want.AskedFor != is.AskedFor ||
		b.until != at.until || b.idle != at.idle || b.lossOpen != at.lossOpen || b.contexts != at.contexts || b.allows != at.allows || b.container != at.container {
		if b.container != "" && b.container == at.container {
			return nil, refused(ipc.StatusRange, "container %s has a job already, with another budget or other options: give a container one device of gpuarb, not two", b.container)
		}
		return nil, refused(ipc.StatusRange, "cgroup %s has the job %s already, with other limits or options: close that one first (gpuarb job close --cgroup %s)",
			at.path, name, at.path)
	}
	return j, nil
}

// checkBindingLocked returns an error if the job of a cgroup may not be opened. own are the cgroups of the opener.
// It sets at.inside: whether the opener itself runs in the job of a cgroup.
func (d *Daemon) checkBindingLocked(cl *client, r *ipc.BindRequest, at *binding, own []string) error {
	name := r.Name.String()
	for _, j := range d.bindings {
		if nameOf(d.file.Jobs.At(j.index)) == name {
			return refused(ipc.StatusRange, "the job of cgroup %s has the name %s already: give the new job another name, or close that job", j.bound.path, name)
		}
	}
	outer, err := d.mayBindLocked(cl, at.path, own)
	if err == nil {
		err = d.checkInsideLocked(&r.Job, outer)
	}
	switch {
	case err != nil:
		return err
	case len(d.bindings) >= statefile.MaxBindings:
		return tooManyBindings()
	case d.nestedLocked(at.path) > maxNested:
		return refused(ipc.StatusTooMany, "%d jobs of cgroups would be nested, the most is %d: close one of them (`gpuarb job list` lists them)", d.nestedLocked(at.path), maxNested)
	}
	at.inside = outer != nil
	return d.checkJobLocked(cl.conn.Peer(), &r.Job)
}

// mayBindLocked returns the binding that the peer itself is in; nil: none. It returns an error if path does not lie below
// the cgroup of that binding. own are the cgroups of the peer.
func (d *Daemon) mayBindLocked(cl *client, path string, own []string) (outer *job, err error) {
	outer = d.bindingOfLocked(func(yield func(string) bool) {
		for _, at := range own {
			if !yield(at) {
				return
			}
		}
	})
	if outer == nil {
		return nil, nil
	}
	for at := filepath.Dir(path); at != "/"; at = filepath.Dir(at) {
		if at == outer.bound.path {
			return outer, nil
		}
	}
	return nil, refused(ipc.StatusPermission, "process %d is in the job of cgroup %s: it may open and close only jobs of cgroups below that cgroup", cl.conn.Peer().PID, outer.bound.path)
}

// bindingRecord returns the record, for the state file, of the job that a request asks for.
func bindingRecord(r *ipc.BindRequest, uid, gid uint32, token ipc.Token) statefile.Job {
	q := &r.Job
	record := statefile.Job{Run: 1, Token: token, UID: uid, GID: gid, Flags: jobBound | q.Flags&^(ipc.JobProcessor|ipc.JobNoWait|ipc.JobRetry), Streams: q.Streams,
		Max: q.Memory, MaxPerMille: q.MemoryShare, Min: q.Min, MinPerMille: q.MinShare, Priority: q.Priority, Asked: q.Devices, AskedFor: q.Device}
	if r.Flags&ipc.BindContextsInside != 0 {
		record.Flags |= jobContextsInside
	}
	statefile.SetTexts(&record.Command, q.Command.String(), r.Name.String())
	return record
}

// openWithin converts the longest wait of a request for the arbiter.
func openWithin(millis uint64) time.Duration {
	if millis == ipc.NoLimit {
		return rules.NoTimeout
	}
	return time.Duration(min(millis, maxWaitMillis)) * time.Millisecond
}

// boundRequestLocked converts the record of a cgroup's job for the arbiter.
func (d *Daemon) boundRequestLocked(b *binding, proc rules.Process, r *statefile.Job, around *job) arbiter.JobRequest {
	request := jobRequest(proc, r)
	request.Cgroup, request.Around, request.ContextsInside = b.path, idOf(around), b.contexts
	request.Terms = b.terms()
	request.FromInside = b.inside
	request.Allows = arbiter.Allowed{Claim: b.allows&ipc.BindAllowClaim != 0, Reserve: b.allows&ipc.BindAllowReserve != 0, Exclusive: b.allows&ipc.BindAllowExclusive != 0,
		Priority: b.allows&ipc.BindAllowPriority != 0}
	return request
}

// shortDuration returns a duration without zero seconds and minutes at its end: 10m, 2h.
func shortDuration(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if short := strings.TrimSuffix(text, zero); short != text && strings.ContainsAny(short[max(0, len(short)-1):], "mh") {
			text = short
		}
	}
	return text
}

// terms returns the options with which the job of the cgroup was opened, for snapshots.
func (b *binding) terms() figures.BoundTerms {
	t := figures.BoundTerms{Until: figures.UntilGone, OnLoss: figures.LossClosed, Contexts: figures.ContextsOutside}
	switch b.until {
	case ipc.UntilClosed:
		t.Until = figures.UntilClosed
	case ipc.UntilIdle:
		t.Until = figures.UntilIdle + shortDuration(b.idle)
	}
	if b.lossOpen {
		t.OnLoss = figures.LossOpen
	}
	if b.contexts {
		t.Contexts = figures.ContextsInside
	}
	return t
}

// addBindingLocked adds the job of a cgroup to the arbiter, and writes the two records of the job to the state file. Until
// commitBindingLocked commits them, they count as free. If the daemon ends before, the next daemon uses them only for an open that still
// waits (recoverqueue.go).
func (d *Daemon) addBindingLocked(opener ipc.Peer, h ipc.Header, r *ipc.BindRequest, at *binding, proc rules.Process,
	place arbiter.Place) (*job, arbiter.JobInfo, error) {
	var none arbiter.JobInfo
	index, record, err := d.file.Jobs.New()
	if err != nil {
		return nil, none, refused(ipc.StatusTooMany, "%d jobs are open, the most of all users: end some (`gpuarb jobs` lists them)", statefile.MaxJobs)
	}
	*record = bindingRecord(r, proc.UID, proc.GID, ipc.NewToken())
	if err := d.noteBindingLocked(at, record, opener, h, r.Job.WaitMillis); err != nil {
		d.file.Jobs.Free(index)
		return nil, none, err
	}
	around := d.aroundLocked(at.path)
	request := d.boundRequestLocked(at, proc, record, around)
	request.Command, request.OpenNow, request.Place = r.Job.Command.String(), r.Job.Flags&ipc.JobNoWait != 0, place
	request.OpenWithin = openWithin(r.Job.WaitMillis)
	info, err := d.arb.OpenJob(d.now(), request)
	if err != nil {
		d.file.Bindings.Free(at.row)
		d.file.Jobs.Free(index)
		return nil, none, err
	}
	record.ID = uint64(info.ID)
	faults.At("binding.opened")
	j := newJob(index, record)
	j.namespace, j.bound, j.around = proc.Namespace, at, around
	d.enterJobLocked(j)
	d.bindings[at.path] = j
	return j, info, nil
}

// commitBindingLocked commits the records of a cgroup's job, which now has its reservation. From here on the job survives the daemon.
func (d *Daemon) commitBindingLocked(j *job, info arbiter.JobInfo) {
	d.commitJobLocked(j, info)
	j.bound.used, j.bound.opened = d.now(), d.now()
	d.file.Bindings.At(j.bound.row).Job = *d.file.Jobs.At(j.index)
	d.file.Bindings.Commit(j.bound.row)
	faults.At("binding.committed")
	d.enterBindingLocked(j)
	signal(d.driver.wake)
}

// noteBindingLocked writes the record of a binding, without committing it. This record has the cgroup, and a copy of the job's record.
// While the open waits, the copy also has the opener's process, the number of the request, and the longest wait.
func (d *Daemon) noteBindingLocked(b *binding, record *statefile.Job, opener ipc.Peer, h ipc.Header, waitMillis uint64) error {
	index, row, err := d.file.Bindings.New()
	if err != nil {
		return tooManyBindings()
	}
	*row = statefile.Binding{Until: b.until, IdleMillis: uint64(b.idle.Milliseconds()), Folder: b.folder, Job: *record}
	row.Job.RunnerPID, row.Job.RunnerStart, row.Job.Request, row.Job.WaitMillis = uint32(opener.PID), opener.StartTicks, h.Request, waitMillis
	copy(row.Container[:], b.container)
	if b.lossOpen {
		row.Flags |= ipc.BindLossOpen
	}
	if b.contexts {
		row.Flags |= ipc.BindContextsInside
	}
	row.Flags |= b.allows
	row.SetPath(b.path) // it fits, because rules.CheckCgroup bounds it
	b.row = index
	return nil
}

// tooManyBindings returns the refusal of an open when the number of cgroups' jobs has reached its limit.
func tooManyBindings() error {
	return refused(ipc.StatusTooMany, "%d cgroups have jobs, the most that there can be: close some (`gpuarb job list` lists them)", statefile.MaxBindings)
}

// bindReplyLocked returns the reply to the opener. It leaves out the token, because processes do not join this job by a token:
// the daemon finds them by their cgroup.
func (d *Daemon) bindReplyLocked(j *job) ipc.JobOpenReply {
	rep := d.openReplyLocked(j)
	rep.Job = ipc.Token{}
	return rep
}

// bindDecidedLocked applies the arbiter's decision on the job of a cgroup that waited for its reservation. If the job
// was closed in between, a grant becomes a refusal.
func (cl *client) bindDecidedLocked(h ipc.Header, j *job, dec arbiter.Result) (receipt, func() error) {
	d := cl.d
	if dec.Job == nil || d.jobs[j.token] != j || j.closed {
		d.endRunnerLocked(j)
		if dec.Granted {
			dec = arbiter.Result{Reason: arbiter.ReasonCancelled, Explain: "the job was closed while it waited, because its cgroup is gone or by `gpuarb job close`"}
		}
		return receipt{}, func() error { return cl.replyJobRefusal(h, &dec) }
	}
	d.commitBindingLocked(j, *dec.Job)
	j.repliedTo = cl
	rep := d.bindReplyLocked(j)
	return receipt{job: j}, func() error { return ipc.Reply(cl.conn, h, ipc.StatusOK, &rep, -1) }
}

// unbind closes the job that a request names by its ID, cgroup, name or container, and returns what its programs have used.
func (cl *client) unbind(r *ipc.UnbindRequest) (rep ipc.AccountReply, err error) {
	d, peer := cl.d, cl.conn.Peer()
	if !peer.Privileged {
		return rep, refused(ipc.StatusPermission, "only root may close the job of a cgroup%s", wording.NotRoot(peer.Namespace))
	}
	path := ""
	if text := r.Cgroup.String(); text != "" {
		path = cgroupPath(text)
	}
	own, err := procfacts.Here.Cgroups(peer.PID)
	if err != nil {
		return rep, err
	}
	cl.takeLock()
	defer d.unlock()
	for _, j := range d.bindings {
		if r.ID != 0 && uint64(j.id) == r.ID || path != "" && j.bound.path == path ||
			r.Name != (ipc.ShortText{}) && nameOf(d.file.Jobs.At(j.index)) == r.Name.String() ||
			r.Container != (ipc.ShortText{}) && j.bound.container == r.Container.String() {
			if _, err := d.mayBindLocked(cl, j.bound.path, own); err != nil {
				return rep, err
			}
			if tally, known := d.arb.Tally(d.now(), j.id); known {
				rep.Text = ipc.MakeText(tally.Account())
			}
			d.closeBindingLocked(j)
			return rep, nil
		}
	}
	return rep, refused(ipc.StatusNoSession, "no cgroup has this job now: `gpuarb job list` lists the jobs of cgroups")
}
