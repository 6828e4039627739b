package web

// This file bounds what readers can use: connections, time and memory. peerslots.go shares the
// connections among the peers.

import (
	"context"
	"net"
	"time"
)

// Limits on connections, and on the time for a request and an answer.
const (
	maxConns       = 256
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	answerTimeout  = 30 * time.Second
	idleTimeout    = 60 * time.Second
	maxHeaderBytes = 8 << 10
)

// sendBuffer bounds what the kernel keeps for a reader that does not read. When it is full,
// messages are left unread.
const sendBuffer = 64 << 10

// boundedListener accepts a bounded number of connections at a time, which their peers share.
// Others are closed.
type boundedListener struct {
	net.Listener
	peerSlots *peerSlots
}

func newBoundedListener(l net.Listener, most int) *boundedListener {
	return &boundedListener{l, newPeerSlots(most)}
}

// Accept waits for a connection that gets a slot.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b, ok := c.(interface{ SetWriteBuffer(int) error }); ok {
			_ = b.SetWriteBuffer(sendBuffer)
		}
		peer := peerOf(c)
		leave, ok := l.peerSlots.enter(peer, func() { _ = c.Close() })
		if ok {
			return &countedConn{c, peer, leave}, nil
		}
		_ = c.Close()
	}
}

// countedConn frees its slot when it is closed.
type countedConn struct {
	net.Conn
	peer  string
	leave func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// peerKey is the key of the peer in the context of a request.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*countedConn); ok {
		return context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}

// peerFrom returns the peer that sent a request.
func peerFrom(ctx context.Context) string {
	peer, _ := ctx.Value(peerKey{}).(string)
	return peer
}
