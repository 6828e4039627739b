package ipc

// This file claims a device for a Go program and opens jobs for `gpuarb run` and binding.go. All keep their place in
// the queue while the daemon restarts. requests.go has the plain requests; layout.go has JobOpenRequest.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// ClaimRequest describes a claim. The zero value claims any one device.
type ClaimRequest struct {
	Devices    []int  // indices, in order of preference; none: all
	Exclusive  bool   // no other job may use the device during the claim
	OnlyIfNone bool   // refuse with StatusBusy if the user has a claim already
	Memory     uint64 // bytes, the budget; 0: as the rules say
	Min        uint64 // reserved bytes; 0: as the rules say
	// Patience is the longest wait, after which the error is StatusTimeout; 0: as the rules say.
	Patience time.Duration
	Command  string             // shown to users in lists and messages
	OnNotice func(WaitingReply) // called with each notice while the claim waits; may be nil
}

// Claim is a device, or a slot of a device, that this process holds until Release or until the process ends. A claim
// survives a restart of the daemon.
type Claim struct {
	ID      uint64
	Job     Token       // value of GPUARB_JOB for programs that run under the claim
	Budget  uint64      // bytes
	Devices []JobDevice // one entry: the claimed device

	path string
}

// daemonPatience bounds the search for a daemon that went away while a request waited.
const daemonPatience = 30 * time.Second

// Claim takes a free device, or waits for one in order of arrival until ctx ends. It uses a connection of its own, so
// that one Client can hold several claims. The claim keeps its place in the queue if the daemon restarts during the
// wait.
//
// Errors are ctx's, and a *ReplyError with StatusTimeout, StatusNoDevice on a machine without devices,
// StatusCancelled after a cancellation, StatusDenied or StatusRange. The error is ErrNoDaemon if the daemon went away
// during the wait and did not return within 30 seconds. If Patience runs out in that time, the error is also
// StatusTimeout.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (*Claim, error) {
	return c.claim(ctx, req, 0)
}

// TryClaim claims a device without waiting. It returns StatusBusy if no device is free, or if a waiting request ranks
// before it for the free device.
func (c *Client) TryClaim(ctx context.Context, req ClaimRequest) (*Claim, error) {
	return c.claim(ctx, req, JobNoWait)
}

// claim opens the job of a claim with additional Job* flags.
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

// OpenJob opens a job with the daemon at path, on a connection of its own. It calls onNotice for each notice, as
// Wait.OnNotice describes, and gives up when ctx ends. The request keeps its place in the queue if the daemon
// restarts during the wait.
//
// If the daemon goes away, OpenJob reports that once through onNotice. It then looks for the daemon as long as the
// request may wait, at most for 30 seconds. After that the error is ErrNoDaemon, and also StatusTimeout if the
// request's own time ran out first.
//
// If the queue has no place, OpenJob reports that once and asks again every 100 ms. It returns StatusTimeout after
// the request's longest wait, whether the request was in the queue or not.
func OpenJob(ctx context.Context, path string, open JobOpenRequest, onNotice func(WaitingReply)) (JobOpenReply, error) {
	return openPatiently(ctx, path, open, (*Client).OpenJobWaiting, onNotice)
}

// sendOpen sends a request for a job on a connection, and waits for the reply.
type sendOpen func(*Client, context.Context, JobOpenRequest, Wait) (JobOpenReply, error)

// openPatiently does the work of OpenJob and OpenBinding. send makes the request of open.
func openPatiently(ctx context.Context, path string, open JobOpenRequest, send sendOpen, onNotice func(WaitingReply)) (JobOpenReply, error) {
	began := time.Now()
	reply, err := openWaiting(ctx, path, open, send, onNotice, false)
	if !errors.Is(err, StatusCrowded) {
		return reply, err
	}
	if onNotice != nil {
		onNotice(WaitingReply{Waited: uint64(time.Since(began).Milliseconds()), Text: reply.Text})
	}
	patient := ctx
	if reply.Budget < uint64(math.MaxInt64/time.Millisecond) { // a longer time: wait without a limit
		var cancel context.CancelFunc
		patient, cancel = context.WithDeadline(ctx, began.Add(time.Duration(reply.Budget)*time.Millisecond))
		defer cancel()
	}
	again := time.NewTicker(CrowdedMillis * time.Millisecond)
	defer again.Stop()
	for errors.Is(err, StatusCrowded) && patient.Err() == nil {
		select {
		case <-again.C:
			reply, err = openWaiting(patient, path, open, send, onNotice, true)
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

// openWaiting does the work of openPatiently, but returns StatusCrowded at once, with the reply that has the request's
// longest wait. If again is true, a daemon has answered StatusCrowded before, and may have gone away since.
func openWaiting(ctx context.Context, path string, open JobOpenRequest, send sendOpen, onNotice func(WaitingReply), again bool) (JobOpenReply, error) {
	wait := Wait{Request: NewRequest()}
	began := time.Now()
	var latest WaitingReply
	var lost time.Time // when the daemon went away; zero: it has not
	reported := false  // onNotice has reported the loss
	wait.OnNotice = func(n WaitingReply) {
		latest, lost, reported = n, time.Time{}, false
		if onNotice != nil {
			onNotice(n)
		}
	}
	for {
		reply, err := openOn(ctx, path, open, send, wait)
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
		case !reported && onNotice != nil && ctx.Err() == nil:
			reported = true
			latest.Text = MakeText(fmt.Sprintf("the daemon at %s is gone; waits for it to come back", path))
			onNotice(latest)
		}
		select {
		case <-ctx.Done():
			return JobOpenReply{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// timedOut reports whether a request has waited for WaitMillis.
func (r *JobOpenRequest) timedOut(began time.Time) bool {
	return r.WaitMillis != 0 && uint64(time.Since(began).Milliseconds()) >= r.WaitMillis
}

// jobOpenRequest translates r into the message for the daemon.
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
	if err := open.setDevices(r.Devices); err != nil {
		return open, err
	}
	return open, nil
}

// setDevices sets the devices that the request names.
func (open *JobOpenRequest) setDevices(indices []int) error {
	if len(indices) > PageSlots {
		return refuse(StatusRange, "%d devices, the most is %d", len(indices), PageSlots)
	}
	open.Devices = uint32(len(indices))
	for i, index := range indices {
		if index < 0 {
			return refuse(StatusNoDevice, "there is no device %d", index)
		}
		open.Device[i] = uint32(index)
	}
	return nil
}

// openOn opens a job on a new connection, and closes the connection.
func openOn(ctx context.Context, path string, open JobOpenRequest, send sendOpen, wait Wait) (JobOpenReply, error) {
	conn, err := Dial(ctx, path)
	if err != nil {
		return JobOpenReply{}, err
	}
	defer conn.Close()
	return send(conn, ctx, open, wait)
}

// isDaemonEnd reports whether err means that the daemon is ending or has ended.
func isDaemonEnd(err error) bool { return IsEnd(err) || errors.Is(err, StatusShuttingDown) }

// noDaemon returns a *NoDaemonError for the daemon at path.
func noDaemon(path string, err error) error {
	return &NoDaemonError{Tried: []Attempt{{Path: path, Err: err}}}
}

// isRefusal reports whether the daemon has decided about the request, so that another attempt would have the same
// result.
func isRefusal(err error) bool {
	var refused *ReplyError
	return errors.As(err, &refused) && refused.Status != StatusShuttingDown
}

// Release gives the claim back. The daemon grants the device to the next request in the queue at once.
func (c *Claim) Release(ctx context.Context) error {
	conn, err := Dial(ctx, c.path)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.CloseJob(ctx, c.Job)
}
