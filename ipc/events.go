package ipc

import (
	"context"
	"fmt"
	"time"
)

// The event history on its way from a daemon to a client: package daemon sends it, whoever shows events asks for it.

// MaxEventLines is how many bytes of lines one part can have.
const MaxEventLines = MaxReply - HeaderSize - 24

// ReplyEvents sends one part of the answer to an Events request. It waits for as long as the client does not read,
// or until Close; only the caller does, and it holds nothing but what it is about to send.
func (c *Conn) ReplyEvents(req Header, part EventsPart, lines []byte) error {
	if len(lines) > MaxEventLines {
		return fmt.Errorf("%d bytes of events do not fit into one message", len(lines))
	}
	h := Header{Type: req.Type | ReplyBit, Request: req.Request}
	return c.sent(sendPart(c, h, &part, lines, time.Time{}))
}

// Events asks for the event history, and hands on each part as it comes: whole lines, which are valid until each
// returns. It returns after the last part; with EventsFollow only with an error: ctx's, that of each, or that the daemon has
// gone. To go on afterwards, with this daemon or the next, ask again with Daemon and Offset as the last part's Daemon and Next.
func (c *Client) Events(ctx context.Context, req EventsRequest, each func(part EventsPart, lines []byte) error) error {
	return parts(ctx, c, TypeEvents, &req, func(part *EventsPart, lines []byte) (last bool, err error) {
		err = each(*part, lines)
		return part.Last == 1, err
	})
}
