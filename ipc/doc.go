// Package ipc is the wire between a client process and the daemon: message
// layouts, the codec, the listener with the kernel's word on who the peer is,
// and the client for Go programs.
//
// Transport is SOCK_SEQPACKET on a Unix socket, so that a message is whole or
// absent. Every message starts with a Header; all integers are little-endian;
// structures have no implicit padding. The layouts in layout.go are the only
// copy: cshim/core/wire.h is generated from them by ipc/genlayout.
//
// The package knows bytes, not policy: it never decides whether a request is
// granted. It imports nothing else of this module. The prose of the protocol,
// for people who write another client, is docs/reference/protocol.md.
//
// docs/glossary.md explains the terms.
package ipc
