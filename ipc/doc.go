// Package ipc is the protocol between clients and the daemon: message layouts, the codec, the daemon's listener and
// connections, and the client for Go programs. cshim/core is the client in C.
//
// The main types are [Listener] and [Conn] for the daemon, [Client] and [ShimSession] for clients, and [LeasePage] for
// the memory shared by the daemon and a client.
//
// Invariants: the transport is SOCK_SEQPACKET on a Unix socket, so that a message arrives whole or not at all. Every
// message starts with a [Header]; all integers are little-endian; structures have no implicit padding. layout.go is
// the only source of the layouts: ipc/genlayout makes cshim/core/wire.h from it. A decoded body has passed the checks
// in validate.go.
//
// Locking: each socket has one mutex for its writer, held for one non-blocking system call. One goroutine at a time
// reads from a connection. The words of a lease page are atomics. No lock is held while a caller's function runs,
// except a Client's turn.
//
// The package does not decide whether a request is granted, and imports no other package of this module.
// docs/reference/protocol.md describes the protocol for authors of other clients; docs/glossary.md explains the terms.
package ipc
