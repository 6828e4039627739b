package ipc

// This file accepts connections: it asks the kernel who is at the other end, and turns away who is one too many. listen.go makes the socket.

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Accept waits for the next client whose identity is known and that is within
// the limits; others are dealt with here. When the machine is out of descriptors
// or memory it tries again for as long as it takes. The only error is
// net.ErrClosed, after Close, or one that will not go away.
func (l *Listener) Accept() (*Conn, error) {
	for wait := time.Duration(0); ; {
		ln := l.socket()
		conn, err := ln.AcceptUnix()
		switch {
		case err == nil:
			wait = 0
			if c := l.admit(conn); c != nil {
				return c, nil
			}
		case isTransient(err):
			wait = l.backOff(wait)
		case ln != l.socket(): // there is a new one
		default:
			return nil, err
		}
	}
}

// rest waits for the machine to have again what a call lacked, a while longer than the last time, or until Close.
func (l *Listener) backOff(last time.Duration) time.Duration {
	wait := min(max(2*last, 5*time.Millisecond), 100*time.Millisecond)
	select {
	case <-time.After(wait):
	case <-l.closed:
	}
	return wait
}

// isTransient reports whether a call failed because the connection ended, or because the whole machine lacks descriptors or memory at
// the moment: the daemon's own limit is never reached, since connections are bounded below it.
func isTransient(err error) bool {
	return errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// admit makes a Conn of an accepted connection, or closes it and returns nil.
// The cheap checks come first.
func (l *Listener) admit(conn *net.UnixConn) *Conn {
	sock, err := newSocket(conn, &l.buffers)
	if err != nil {
		conn.Close()
		return nil
	}
	peer, err := sock.credentials()
	if err != nil {
		turnAway(sock, refuse(StatusPermission, "%v", err))
		return nil
	}
	// The namespaces are read first. Then identify checks that the PID is still that of the process that connected.
	peer.Privileged, peer.Namespace = l.standing(peer)
	if err := l.limits.enter(peer); err != nil {
		turnAway(sock, err)
		return nil
	}
	if err := l.kernel.identify(sock, &peer); err != nil {
		l.limits.leave(peer, soloWeight)
		if errors.Is(err, errPeerGone) {
			_ = sock.close()
		} else {
			turnAway(sock, refuse(StatusInternal, "%v", err))
		}
		return nil
	}
	c := &Conn{sock: sock, listener: l, peer: peer}
	c.pidfd.Store(int64(peer.PIDFD))
	c.descriptors.Store(soloWeight)
	if l.opts.Patience > 0 {
		_ = conn.SetReadDeadline(time.Now().Add(l.opts.Patience))
	}
	return c
}

// turnAway tells a client why it is not let in, as a reply to no request in
// particular, and closes the connection.
func turnAway(sock *socket, why *ProtocolError) {
	msg := Marshal(nil, Header{Type: ReplyBit, Status: why.Status}, &ErrorReply{Text: MakeText(why.Text)})
	sock.wMu.Lock()
	_ = sock.trySend(msg, nil, -1)
	sock.wMu.Unlock()
	_ = sock.close()
}
