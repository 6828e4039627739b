package web

// This file finds out who is at the other end of a connection. limits.go asks, so that one user
// cannot take all connections.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// peerOf returns the peer of a connection: a user of this machine, as the kernel knows it, or
// another machine. Behind a proxy or a tunnel the peer is the proxy's user.
func peerOf(c net.Conn) string {
	switch c := c.(type) {
	case *net.UnixConn:
		if uid, err := unixUser(c); err == nil {
			return userPeer(uid)
		}
	case *net.TCPConn:
		local, remote := addressOf(c.LocalAddr()), addressOf(c.RemoteAddr())
		// Every user may use any address of 127.0.0.0/8, so an address of this machine identifies
		// no user.
		if remote.Addr().IsLoopback() || remote.Addr() == local.Addr() {
			if uid, err := tcpUser(remote, local); err == nil {
				return userPeer(uid)
			}
			return "this machine"
		}
		return peerNetwork(remote.Addr())
	}
	return "unknown"
}

func userPeer(uid uint32) string { return fmt.Sprintf("user %d", uid) }

func addressOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// peerNetwork returns the addresses of one machine: an IPv4 address, or an IPv6 network of 64 bits.
func peerNetwork(a netip.Addr) string {
	if a.Is6() {
		if prefix, err := a.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return a.String()
}

// unixUser returns the user that has connected to a Unix socket.
func unixUser(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return cred.Uid, nil
}

// The layout of linux/inet_diag.h: struct inet_diag_req_v2 and struct inet_diag_msg.
const (
	diagRequest = 56
	diagReply   = 72
	diagUser    = 64 // idiag_uid
)

// tcpUser returns the user of a TCP socket of this machine that is bound to the address at and
// connected to the address to. It asks the kernel only for this socket (sock_diag(7)).
// /proc/net/tcp, and netlink's SocketGet, would read the sockets of all programs.
func tcpUser(at, to netip.AddrPort) (uint32, error) {
	request := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	request.AddRawData(diagQuestion(at, to))
	answers, err := request.Execute(unix.NETLINK_SOCK_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return 0, err
	}
	if len(answers) != 1 || len(answers[0]) < diagReply {
		return 0, errors.New("the kernel knows no such socket")
	}
	return binary.NativeEndian.Uint32(answers[0][diagUser:]), nil
}

func diagQuestion(at, to netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := append(make([]byte, 0, diagRequest), family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.BigEndian.AppendUint16(b, at.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	for _, address := range []netip.Addr{at.Addr(), to.Addr()} {
		var room [16]byte
		copy(room[:], address.AsSlice())
		b = append(b, room[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)             // any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // INET_DIAG_NOCOOKIE twice
}
