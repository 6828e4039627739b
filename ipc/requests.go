package ipc

// This file has one function for each request of commands and tools. shimclient.go has the requests of programs with
// a lease. call.go sends them.

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Bye ends the session and closes the connection.
func (c *Client) Bye(ctx context.Context) error {
	err := Call(ctx, c, TypeBye, &Empty{}, &Empty{})
	return errors.Join(err, c.Close())
}

// Hello opens a tool's session, which has neither lease page nor leases. Hello sets req.Kind.
func (c *Client) Hello(ctx context.Context, req HelloRequest) (HelloReply, error) {
	req.Kind = KindTool
	rep, err := replyTo[HelloReply](ctx, c, TypeHello, req)
	c.able.Store(rep.Flags)
	return rep, err
}

// OpenJob opens a job, which lives as long as this process or any process in the job. It waits for the job's slots
// and reservation; OpenJobWaiting reports the wait.
func (c *Client) OpenJob(ctx context.Context, req JobOpenRequest) (JobOpenReply, error) {
	return replyTo[JobOpenReply](ctx, c, TypeJobOpen, req)
}

// OpenJobWaiting does the work of OpenJob, reports the wait to w.OnNotice, and can be cancelled: see CallWaiting.
func (c *Client) OpenJobWaiting(ctx context.Context, req JobOpenRequest, w Wait) (JobOpenReply, error) {
	var reply JobOpenReply
	err := CallWaiting(ctx, c, TypeJobOpen, &req, &reply, w)
	return reply, err
}

// BuildNoExports in JobOpenReply.Text asks for the build of the library without exported driver functions, for the
// job's programs. Earlier clients read Text only after a refusal; earlier daemons leave it empty.
const BuildNoExports = "no-exports"

// CloseJob gives back a job's claim, slots and reservation. The job itself ends with its last process.
func (c *Client) CloseJob(ctx context.Context, job Token) error {
	return Call(ctx, c, TypeJobClose, &JobCloseRequest{Job: job}, &Empty{})
}

// SetLimit changes limits of a process, job, device, user or rule. The daemon refuses with StatusPermission if the
// user may not change the limit, and with StatusRange if the value is invalid.
func (c *Client) SetLimit(ctx context.Context, req LimitRequest) error {
	return Call(ctx, c, TypeLimit, &req, &Empty{})
}

// SetCgroupLimit changes the limit of all programs in a cgroup together. The daemon refuses as in SetLimit. A daemon
// without this limit answers with StatusUnknownType.
func (c *Client) SetCgroupLimit(ctx context.Context, path string, req LimitRequest) error {
	return Call(ctx, c, TypeCgroup, &CgroupRequest{Limit: req, Path: MakeText(path)}, &Empty{})
}

// Tally returns a job's peak memory, waiting time and refusals so far. A daemon without this message answers with
// StatusUnknownType.
func (c *Client) Tally(ctx context.Context, job Token) (JobTallyReply, error) {
	return replyTo[JobTallyReply](ctx, c, TypeJobTally, JobTallyRequest{Job: job})
}

// Beside returns the processes of a job that used a device without the library. A daemon without this message answers
// with StatusUnknownType.
func (c *Client) Beside(ctx context.Context, job Token) (BesideReply, error) {
	return replyTo[BesideReply](ctx, c, TypeBeside, BesideRequest{Job: job})
}

// Exited tells how the command of a job has ended. A daemon without this message answers with StatusUnknownType.
func (c *Client) Exited(ctx context.Context, req ExitedRequest) error {
	return Call(ctx, c, TypeExited, &req, &Empty{})
}

// Warnings returns the warnings of a job by idle.warn and age.warn so far. A daemon without this message answers with
// StatusUnknownType.
func (c *Client) Warnings(ctx context.Context, job Token) (WarningsReply, error) {
	return replyTo[WarningsReply](ctx, c, TypeWarnings, WarningsRequest{Job: job})
}

// Account returns a sentence about what a job has used so far, how long it waited, and what it was refused. A daemon
// without this message answers with StatusUnknownType.
func (c *Client) Account(ctx context.Context, job Token) (string, error) {
	rep, err := replyTo[AccountReply](ctx, c, TypeAccount, AccountRequest{Job: job})
	return rep.Text.String(), err
}

// Cancel removes waiting requests from the queue and returns their number.
func (c *Client) Cancel(ctx context.Context, req CancelRequest) (int, error) {
	var reply CancelReply
	err := Call(ctx, c, TypeCancel, &req, &reply)
	return int(reply.Cancelled), err
}

// Suspend asks a job to give its memory back; with resume, it lets a suspended job take its memory again as soon as
// there is room. The daemon refuses with StatusRange if that cannot be done, and the text says why. A daemon without
// this message answers with StatusUnknownType.
func (c *Client) Suspend(ctx context.Context, job uint64, resume bool) error {
	request := SuspendRequest{Job: job}
	if resume {
		request.Resume = 1
	}
	return Call(ctx, c, TypeSuspend, &request, &Empty{})
}

// maxSnapshot bounds the bytes that Snapshot and Metrics accept from a daemon.
const maxSnapshot = 256 << 20

// Snapshot returns the daemon's whole state at one moment, as JSON.
func (c *Client) Snapshot(ctx context.Context) ([]byte, error) { return c.fetchText(ctx, TypeSnapshot) }

// Metrics returns the daemon's metrics at one moment, in Prometheus' text format, version 0.0.4. A daemon without
// this message answers with StatusUnknownType.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.fetchText(ctx, TypeMetrics) }

// fetchText asks for a text that comes in parts, and returns the whole text.
func (c *Client) fetchText(ctx context.Context, typ Type) (whole []byte, err error) {
	err = callParts(ctx, c, typ, &Empty{}, func(part *SnapshotPart, text []byte) (last bool, err error) {
		if whole == nil {
			whole = make([]byte, 0, max(len(text), c.last+c.last/8))
		}
		if whole = append(whole, text...); part.Last == 1 {
			c.last = len(whole)
		} else if len(whole) > maxSnapshot {
			err = fmt.Errorf("%v: more than %d bytes: %w", typ, maxSnapshot, io.ErrShortBuffer)
		}
		return part.Last == 1, err
	})
	if err != nil {
		return nil, err
	}
	return whole, nil
}

// callParts sends a request whose answer comes in parts. It calls each with every part and the bytes behind it, until
// each returns last or an error.
func callParts[Req, Part Body](ctx context.Context, c *Client, typ Type, req *Req, each func(part *Part, rest []byte) (last bool, err error)) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer func() { c.turn <- struct{}{} }()
	stop := c.closeWhenDone(ctx)
	small := c.sock.in
	c.sock.in = make([]byte, MaxReply)
	defer func() { c.sock.in = small }()
	h := Header{Type: typ, Request: NewRequest()}
	err := send(c, h, req, -1, nil)
	for last := false; err == nil && !last; {
		var part Part
		var rest []byte
		if rest, err = receivePart(c, h, &part); err == nil {
			last, err = each(&part, rest)
		}
	}
	return c.finish(ctx, stop(), err)
}

// receivePart waits for the next part of such an answer, and returns the bytes behind its body.
func receivePart[Part Body](c *Client, asked Header, part *Part) (rest []byte, err error) {
	got, body, _, err := c.reply(asked)
	if err != nil {
		return nil, err
	}
	if got.Status != StatusOK {
		return nil, &ReplyError{Type: asked.Type, Status: got.Status}
	}
	n := size[Part]()
	return body[n:], Unmarshal(body[:n], part)
}
