package web

import (
	"context"
	"net"
	"time"
)

// Bounds of what readers can use: connections, and time for a request and an answer.
const (
	maxConns       = 256
	headerWithin   = 5 * time.Second
	requestWithin  = 10 * time.Second
	answerWithin   = 30 * time.Second
	idleAtMost     = 60 * time.Second
	maxHeaderBytes = 8 << 10
)

// sendBuffer bounds what the kernel keeps for a reader that does not read: behind it, messages are left unread.
const sendBuffer = 64 << 10

// boundedListener accepts so many connections at a time, which their peers share (places); others are closed.
type boundedListener struct {
	net.Listener
	places *places
}

func bound(l net.Listener, most int) *boundedListener {
	return &boundedListener{l, newPlaces(most)}
}

// Accept waits for a connection that has a place.
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
		leave, ok := l.places.enter(peer, func() { _ = c.Close() })
		if ok {
			return &placedConn{c, peer, leave}, nil
		}
		_ = c.Close()
	}
}

// placedConn gives its place back as it is closed.
type placedConn struct {
	net.Conn
	peer  string
	leave func()
}

// Close closes the connection.
func (c *placedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// peerKey is the key at which a request's context has its connection's peer.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*placedConn); ok {
		return context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}

// peerIn is whose a request is.
func peerIn(ctx context.Context) string {
	peer, _ := ctx.Value(peerKey{}).(string)
	return peer
}
