package ipc

// This file has the requests of commands: one function for each. Those of programs with a session are in shimclient.go.

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Bye ends the session in good order and closes the connection.
func (c *Client) Bye(ctx context.Context) error {
	err := Call(ctx, c, TypeBye, &Empty{}, &Empty{})
	return errors.Join(err, c.Close())
}

// Hello opens a session of a tool: no lease page, no lease. req.Kind is set here.
func (c *Client) Hello(ctx context.Context, req HelloRequest) (HelloReply, error) {
	req.Kind = KindTool
	return replyTo[HelloReply](ctx, c, TypeHello, req)
}

// OpenJob opens a job, which lives as long as this process or any process in it. It
// waits for what the job is to hold: see OpenJobWaiting.
func (c *Client) OpenJob(ctx context.Context, req JobOpenRequest) (JobOpenReply, error) {
	return replyTo[JobOpenReply](ctx, c, TypeJobOpen, req)
}

// OpenJobWaiting is OpenJob that tells of the wait and can be given up: see CallWaiting.
func (c *Client) OpenJobWaiting(ctx context.Context, req JobOpenRequest, w Wait) (JobOpenReply, error) {
	var reply JobOpenReply
	err := CallWaiting(ctx, c, TypeJobOpen, &req, &reply, w)
	return reply, err
}

// BuildNoExports in JobOpenReply.Text: the job's programs are to have the library without exported driver functions. Earlier clients
// read Text of a refusal alone, and the text of an earlier daemon is empty.
const BuildNoExports = "no-exports"

// CloseJob gives back what a job holds beyond its processes: claim, slots, reservation.
func (c *Client) CloseJob(ctx context.Context, job Token) error {
	return Call(ctx, c, TypeJobClose, &JobCloseRequest{Job: job}, &Empty{})
}

// SetLimit changes limits of a process, a job or a device. The daemon answers a wish
// that is not permitted with StatusPermission, one that makes no sense with StatusRange.
func (c *Client) SetLimit(ctx context.Context, req LimitRequest) error {
	return Call(ctx, c, TypeLimit, &req, &Empty{})
}

// SetCgroupLimit changes what all programs in a cgroup may hold. The daemon answers as to SetLimit; one that knows no
// such limit, with StatusUnknownType.
func (c *Client) SetCgroupLimit(ctx context.Context, path string, req LimitRequest) error {
	return Call(ctx, c, TypeCgroup, &CgroupRequest{Limit: req, Path: MakeText(path)}, &Empty{})
}

// Tally returns what became of a job so far. A daemon that keeps no such count answers with
// StatusUnknownType.
func (c *Client) Tally(ctx context.Context, job Token) (JobTallyReply, error) {
	return replyTo[JobTallyReply](ctx, c, TypeJobTally, JobTallyRequest{Job: job})
}

// Beside returns which processes of a job used a device past the library. A daemon that does not know this message answers
// with StatusUnknownType.
func (c *Client) Beside(ctx context.Context, job Token) (BesideReply, error) {
	return replyTo[BesideReply](ctx, c, TypeBeside, BesideRequest{Job: job})
}

// Cancel takes waiting requests out of the queue, and returns how many they were.
func (c *Client) Cancel(ctx context.Context, req CancelRequest) (int, error) {
	var reply CancelReply
	err := Call(ctx, c, TypeCancel, &req, &reply)
	return int(reply.Cancelled), err
}

// maxSnapshot is the most bytes that Snapshot and Metrics take from a daemon.
const maxSnapshot = 256 << 20

// Snapshot is the daemon's whole state at one moment, as JSON.
func (c *Client) Snapshot(ctx context.Context) ([]byte, error) { return c.inParts(ctx, TypeSnapshot) }

// Metrics are the daemon's metrics at one moment, in the text format of Prometheus, version 0.0.4. A daemon that has
// none answers with StatusUnknownType.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.inParts(ctx, TypeMetrics) }

// inParts asks for a text that comes in parts, and returns it whole.
func (c *Client) inParts(ctx context.Context, typ Type) (whole []byte, err error) {
	err = parts(ctx, c, typ, &Empty{}, func(part *SnapshotPart, text []byte) (last bool, err error) {
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

// parts asks for what comes in parts, and hands on each, with the bytes behind it, until each says that it was the last one.
func parts[Req, Part Body](ctx context.Context, c *Client, typ Type, req *Req, each func(part *Part, rest []byte) (last bool, err error)) error {
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

// receivePart waits for the next part of an answer that comes in parts.
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
