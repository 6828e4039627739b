package ipc

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks the transfer of the event history: to a client that reads to the end, to one that does not read,
// and to one that gives up. daemon/history keeps the events; tests/events reads them from a daemon.

var errEnough = errors.New("enough")

// TestEvents: parts arrive whole and in order, and the connection can be used for other requests afterwards.
func TestEvents(t *testing.T) {
	checkFDs(t)
	full := bytes.Repeat([]byte("x"), MaxEventLines)
	l := serve(t, ListenOptions{}, func(c *Conn) {
		for {
			m, err := c.ReadMessage()
			if err != nil {
				return
			}
			if m.Header.Type != TypeEvents {
				_ = Reply(c, m.Header, StatusOK, &QueryReply{}, -1)
				continue
			}
			if err := c.ReplyEvents(m.Header, EventsPart{}, append(full, 'x')); err == nil {
				t.Error("a part was sent that is too long")
			}
			_ = c.ReplyEvents(m.Header, EventsPart{Daemon: 5, Next: MaxEventLines}, full)
			_ = c.ReplyEvents(m.Header, EventsPart{Daemon: 5, Next: MaxEventLines, Last: 1}, nil)
		}
	})
	c := dial(t, l.Path())
	var got []byte
	var last EventsPart
	err := c.Events(t.Context(), EventsRequest{}, func(part EventsPart, lines []byte) error {
		got, last = append(got, lines...), part
		return nil
	})
	if err != nil || !bytes.Equal(got, full) || last != (EventsPart{Daemon: 5, Next: MaxEventLines, Last: 1}) {
		t.Fatalf("%d bytes, %+v, %v", len(got), last, err)
	}
	if _, err := c.Query(t.Context(), UUID{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Events(t.Context(), EventsRequest{}, func(EventsPart, []byte) error { return errEnough }); !errors.Is(err, errEnough) || !c.Closed() {
		t.Errorf("who has enough: %v, closed: %t", err, c.Closed())
	}
}

// TestEventsNotRead: a client that follows events and does not read delays only the sender, until the connection is
// closed.
func TestEventsNotRead(t *testing.T) {
	checkFDs(t)
	_, c := pair(t)
	ended := make(chan error)
	go func() {
		var err error
		for err == nil {
			err = c.ReplyEvents(Header{Type: TypeEvents}, EventsPart{Daemon: 1}, make([]byte, MaxEventLines))
		}
		ended <- err
	}()
	eventually(t, "there is no room", func() bool {
		return errors.Is(Reply(c, Header{Type: TypeBye}, StatusOK, &Empty{}, -1), ErrSlowReader)
	})
	if err := bounded.Receive(t, "the sender ends", ended); !errors.Is(err, net.ErrClosed) && !errors.Is(err, ErrSlowReader) {
		t.Errorf("ReplyEvents: %v", err)
	}
}

// TestEventsGivenUp: the end of the context ends a request that follows events.
func TestEventsGivenUp(t *testing.T) {
	checkFDs(t)
	c := scripted(t, func(h Header) []byte {
		h.Type |= ReplyBit
		return Marshal(nil, h, &EventsPart{Daemon: 5})
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Events(ctx, EventsRequest{Flags: EventsFollow}, func(EventsPart, []byte) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Events: %v", err)
	}
}
