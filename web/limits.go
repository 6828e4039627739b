package web

import (
	"net"
	"sync"
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

// boundedListener accepts so many connections at a time; further ones wait in the kernel's backlog.
type boundedListener struct {
	net.Listener
	places chan struct{}
}

func bound(l net.Listener, most int) *boundedListener {
	return &boundedListener{l, make(chan struct{}, most)}
}

// Accept waits for a place, then for a connection.
func (l *boundedListener) Accept() (net.Conn, error) {
	l.places <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// placedConn gives its place back as it is closed.
type placedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *placedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
