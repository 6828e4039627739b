package ipc

// This file carries the event history from the daemon to a client. Package daemon calls ReplyEvents; programs that
// show events call Events. Package daemon/history keeps the lines.

import (
	"context"
	"fmt"
	"time"
)

// MaxEventLines is the most bytes of lines in one part.
const MaxEventLines = MaxReply - HeaderSize - 24

// ReplyEvents sends one part of the answer to an Events request. It waits until the client reads or the connection is
// closed. The caller must hold no lock.
func (c *Conn) ReplyEvents(req Header, part EventsPart, lines []byte) error {
	if len(lines) > MaxEventLines {
		return fmt.Errorf("%d bytes of events do not fit into one message", len(lines))
	}
	h := Header{Type: req.Type | ReplyBit, Request: req.Request}
	return c.sent(sendPart(c, h, &part, lines, time.Time{}))
}

// Events asks for the event history and calls each with every part: whole lines, valid until each returns. It returns
// after the last part. With EventsFollow there is no last part: Events returns with ctx's error, with an error of
// each, or because the daemon has gone.
//
// To continue later, with this daemon or another, ask again with the last part's Daemon and Next as Daemon and
// Offset.
func (c *Client) Events(ctx context.Context, req EventsRequest, each func(part EventsPart, lines []byte) error) error {
	return callParts(ctx, c, TypeEvents, &req, func(part *EventsPart, lines []byte) (last bool, err error) {
		err = each(*part, lines)
		return part.Last == 1, err
	})
}
