package ipc

import (
	"context"
	"fmt"
	"time"
)

// The event history on its way from a daemon to a client: package daemon sends it, whoever shows events asks for it.

// EventsRoom is how many bytes of lines one part can have.
const EventsRoom = MaxReply - HeaderSize - 24

// ReplyEvents sends one part of the answer to an Events request. It waits for as long as the client does not read,
// or until Close; only the caller does, and it holds nothing but what it is about to send.
func (c *Conn) ReplyEvents(req Header, part EventsPart, lines []byte) error {
	if len(lines) > EventsRoom {
		return fmt.Errorf("%d bytes of events do not fit into one message", len(lines))
	}
	h := Header{Type: req.Type | ReplyBit, Request: req.Request}
	return c.sent(sendPart(c, h, &part, lines, time.Time{}))
}

// Events asks for the event history, and hands on each part as it comes: whole lines, which are valid until each
// returns. It returns after the last part; with EventsFollow only with an error: ctx's, that of each, or that the daemon has
// gone. To go on afterwards, with this daemon or the next, ask again with Daemon and Offset as the last part's Daemon and Next.
func (c *Client) Events(ctx context.Context, req EventsRequest, each func(part EventsPart, lines []byte) error) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	defer func() { c.turn <- struct{}{} }()
	stop := c.closeWhenDone(ctx)
	err := c.events(req, each)
	return c.settle(ctx, stop(), err)
}

func (c *Client) events(req EventsRequest, each func(EventsPart, []byte) error) error {
	small := c.sock.in
	c.sock.in = make([]byte, MaxReply)
	defer func() { c.sock.in = small }()
	h := Header{Type: TypeEvents, Request: NewRequest()}
	if err := send(c, h, &req, -1, nil); err != nil {
		return err
	}
	for {
		part, lines, err := receivePart[EventsPart](c, h)
		if err != nil {
			return err
		}
		if err := each(part, lines); err != nil || part.Last == 1 {
			return err
		}
	}
}

// receivePart waits for the next part of an answer that comes in parts.
func receivePart[T Body](c *Client, asked Header) (part T, rest []byte, err error) {
	got, body, _, err := c.reply(asked)
	if err != nil {
		return part, nil, err
	}
	if got.Status != StatusOK {
		return part, nil, &ReplyError{Type: asked.Type, Status: got.Status}
	}
	n := size[T]()
	return part, body[n:], Unmarshal(body[:n], &part)
}
