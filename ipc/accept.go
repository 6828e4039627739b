package ipc

// This file accepts connections for the daemon's serving loop: it asks the kernel for the peer's identity and closes
// connections beyond the limits. listen.go makes the socket, peer.go reads the identity, limits.go counts
// connections.

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Accept waits for the next client whose identity is known and that the limits admit. It answers and closes other
// connections itself. If the machine lacks file descriptors or memory, Accept tries again without a time limit. It
// returns net.ErrClosed after Close, or an error that a retry cannot solve.
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
		case ln != l.socket(): // Renew has replaced the socket
		default:
			return nil, err
		}
	}
}

// backOff waits before the next accept(2), until Close at the latest. It doubles the last wait, from 5 ms up to 100
// ms, and returns the new one.
func (l *Listener) backOff(last time.Duration) time.Duration {
	wait := min(max(2*last, 5*time.Millisecond), 100*time.Millisecond)
	select {
	case <-time.After(wait):
	case <-l.closed:
	}
	return wait
}

// isTransient reports whether accept(2) failed because the connection ended, or because the whole machine lacks
// descriptors or memory. The daemon's own limit of descriptors cannot be the cause: connections are bounded below it.
func isTransient(err error) bool {
	return errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
}

// admit makes a Conn of an accepted connection, or closes the connection and returns nil. The cheap checks come
// first.
func (l *Listener) admit(conn *net.UnixConn) *Conn {
	sock, err := newSocket(conn, &l.buffers)
	if err != nil {
		conn.Close()
		return nil
	}
	peer, err := sock.credentials()
	if err != nil {
		refuseConnection(sock, refuse(StatusPermission, "%v", err))
		return nil
	}
	// The namespaces are read first. Then identify checks that the PID is still that of the process that connected.
	peer.Privileged, peer.Namespace = l.standing(peer)
	if err := l.limits.enter(peer); err != nil {
		refuseConnection(sock, err)
		return nil
	}
	if err := l.kernel.identify(sock, &peer); err != nil {
		l.limits.leave(peer, soloWeight)
		if errors.Is(err, errPeerGone) {
			_ = sock.close()
		} else {
			refuseConnection(sock, refuse(StatusInternal, "%v", err))
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

// refuseConnection sends a client the reason why its connection is refused, as a reply to no request in particular, and
// closes the connection.
func refuseConnection(sock *socket, why *ProtocolError) {
	msg := Marshal(nil, Header{Type: ReplyBit, Status: why.Status}, &ErrorReply{Text: MakeText(why.Text)})
	sock.wMu.Lock()
	_ = sock.trySend(msg, nil, -1)
	sock.wMu.Unlock()
	_ = sock.close()
}
