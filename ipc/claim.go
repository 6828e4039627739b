package ipc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// ClaimRequest says what is claimed. Its zero value claims any one device.
type ClaimRequest struct {
	Devices    []int  // indices, in order of preference; none: all
	Exclusive  bool   // nobody else uses the device meanwhile
	OnlyIfNone bool   // StatusBusy when the user has a claim already
	Memory     uint64 // bytes, the budget; 0: as the rules say
	Min        uint64 // bytes to be reserved; 0: as the rules say
	// Patience is the longest wait, StatusTimeout then; 0: as the rules say.
	Patience time.Duration
	Command  string             // for people
	OnNotice func(WaitingReply) // of how the claim stands while it waits; may be nil
}

// Claim is a device, or a slot of one, that this process holds until Release or its end.
// It outlives the daemon.
type Claim struct {
	ID      uint64
	Job     Token       // for GPUARB_JOB of programs that are to run inside it
	Budget  uint64      // bytes
	Devices []JobDevice // the one that was claimed

	path string
}

// daemonPatience is how long a daemon that went away while something waited is looked for.
const daemonPatience = 30 * time.Second

// Claim takes a device that is free, or waits for one in order of arrival until ctx ends.
// It uses a connection of its own, so that one Client can hold several claims. A daemon
// that is restarted meanwhile keeps the place in the queue.
//
// Errors: ctx's, and a *ReplyError with StatusTimeout, StatusNoDevice on a machine
// without any, StatusCancelled when somebody cancelled it, StatusDenied or StatusRange;
// ErrNoDaemon when the daemon went away meanwhile and does not come back within 30
// seconds, StatusTimeout too when Patience has run out before that.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (*Claim, error) {
	return c.claim(ctx, req, 0)
}

// TryClaim is Claim that never waits: StatusBusy when no device is free, or when one is
// and somebody who waits is due for it.
func (c *Client) TryClaim(ctx context.Context, req ClaimRequest) (*Claim, error) {
	return c.claim(ctx, req, JobNoWait)
}

func (c *Client) claim(ctx context.Context, req ClaimRequest, flags uint32) (*Claim, error) {
	open, err := req.jobOpenRequest(flags)
	if err != nil {
		return nil, err
	}
	reply, err := OpenJob(ctx, c.path, open, req.OnNotice)
	if err != nil {
		return nil, err
	}
	return &Claim{ID: reply.ID, Job: reply.Job, Budget: reply.Budget, path: c.path,
		Devices: reply.Device[:reply.Devices]}, nil
}

// OpenJob opens a job with the daemon at path, on a connection of its own. It tells of
// the wait, as Wait.OnNotice says, and gives up when ctx ends. A daemon that is restarted
// meanwhile keeps the place in the queue. One that is gone is told of once, and looked
// for as long as the request may wait, 30 seconds at most: the error is ErrNoDaemon then,
// and StatusTimeout too where it was the wait that ended first. A request for which there
// is no place in the queue is told of once, and asked again every 100 ms; it ends with
// StatusTimeout when it has waited as long as it may, in the queue or not.
func OpenJob(ctx context.Context, path string, open JobOpenRequest, told func(WaitingReply)) (JobOpenReply, error) {
	began := time.Now()
	reply, err := openWaiting(ctx, path, open, told, false)
	if !errors.Is(err, StatusCrowded) {
		return reply, err
	}
	if told != nil {
		told(WaitingReply{Waited: uint64(time.Since(began).Milliseconds()), Text: reply.Text})
	}
	patient := ctx
	if reply.Budget < uint64(math.MaxInt64/time.Millisecond) { // else it waits without end
		var cancel context.CancelFunc
		patient, cancel = context.WithDeadline(ctx, began.Add(time.Duration(reply.Budget)*time.Millisecond))
		defer cancel()
	}
	again := time.NewTicker(CrowdedMillis * time.Millisecond)
	defer again.Stop()
	for errors.Is(err, StatusCrowded) && patient.Err() == nil {
		select {
		case <-again.C:
			reply, err = openWaiting(patient, path, open, told, true)
		case <-patient.Done():
		}
	}
	if patient.Err() != nil && ctx.Err() == nil && err != nil {
		return JobOpenReply{}, &ReplyError{Type: TypeJobOpen, Status: StatusTimeout,
			Text: fmt.Sprintf("waited for %v, as long as it may: the queue was full when it came", time.Since(began).Round(time.Millisecond))}
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return reply, err
}

// openWaiting is OpenJob that returns StatusCrowded at once, with the reply that says how long the request may wait. again: a daemon has
// answered so before, and may be gone since.
func openWaiting(ctx context.Context, path string, open JobOpenRequest, told func(WaitingReply), again bool) (JobOpenReply, error) {
	wait := Wait{Request: NewRequest()}
	began := time.Now()
	var latest WaitingReply
	var lost time.Time // when the daemon went away
	reported := false  // somebody was told so
	wait.OnNotice = func(n WaitingReply) {
		latest, lost, reported = n, time.Time{}, false
		if told != nil {
			told(n)
		}
	}
	for {
		reply, err := openOn(ctx, path, open, wait)
		switch {
		case err == nil:
			return reply, nil
		case isRefusal(err) || lost.IsZero() && !again && !isDaemonEnd(err):
			return reply, err
		case lost.IsZero():
			lost = time.Now()
			open.Flags |= JobRetry
		case open.timedOut(began):
			return JobOpenReply{}, fmt.Errorf("%w: %w", StatusTimeout, noDaemon(path, err))
		case time.Since(lost) > daemonPatience:
			return JobOpenReply{}, noDaemon(path, err)
		case !reported && told != nil && ctx.Err() == nil:
			reported = true
			latest.Text = MakeText(fmt.Sprintf("the daemon at %s is gone; waits for it to come back", path))
			told(latest)
		}
		select {
		case <-ctx.Done():
			return JobOpenReply{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// late tells that a request has waited as long as it says that it may.
func (r *JobOpenRequest) timedOut(began time.Time) bool {
	return r.WaitMillis != 0 && uint64(time.Since(began).Milliseconds()) >= r.WaitMillis
}

// open spells the request on the wire.
func (r *ClaimRequest) jobOpenRequest(flags uint32) (JobOpenRequest, error) {
	open := JobOpenRequest{Memory: NoLimit, Min: NoLimit, Flags: flags | JobClaim | JobAny,
		WaitMillis: uint64(r.Patience.Milliseconds()), Command: MakeText(r.Command)}
	if r.Patience > 0 {
		open.WaitMillis = max(open.WaitMillis, 1)
	}
	if r.Memory != 0 {
		open.Memory = r.Memory
	}
	if r.Min != 0 {
		open.Min = r.Min
	}
	if r.Exclusive {
		open.Flags |= JobExclusive
	}
	if r.OnlyIfNone {
		open.Flags |= JobOnlyIfNone
	}
	if len(r.Devices) > PageSlots {
		return open, refuse(StatusRange, "%d devices, the most is %d", len(r.Devices), PageSlots)
	}
	open.Devices = uint32(len(r.Devices))
	for i, index := range r.Devices {
		if index < 0 {
			return open, refuse(StatusNoDevice, "there is no device %d", index)
		}
		open.Device[i] = uint32(index)
	}
	return open, nil
}

// openOn opens a job on a connection of its own.
func openOn(ctx context.Context, path string, open JobOpenRequest, wait Wait) (JobOpenReply, error) {
	conn, err := Dial(ctx, path)
	if err != nil {
		return JobOpenReply{}, err
	}
	defer conn.Close()
	return conn.OpenJobWaiting(ctx, open, wait)
}

// isDaemonEnd tells an error that a daemon's end brought.
func isDaemonEnd(err error) bool { return IsEnd(err) || errors.Is(err, StatusShuttingDown) }

// noDaemon says that the daemon at path is gone for good.
func noDaemon(path string, err error) error {
	return &NoDaemonError{Tried: []Attempt{{Path: path, Err: err}}}
}

// isRefusal tells an answer of the daemon's, which trying again does not change.
func isRefusal(err error) bool {
	var refused *ReplyError
	return errors.As(err, &refused) && refused.Status != StatusShuttingDown
}

// Release gives the claim back. The next in the queue has it at once.
func (c *Claim) Release(ctx context.Context) error {
	conn, err := Dial(ctx, c.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.CloseJob(ctx, c.Job)
}
