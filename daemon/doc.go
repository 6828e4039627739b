// Package daemon composes the parts: configuration, devices, the state that
// outlived the last daemon, the socket, the filesystem. It owns the one lock
// that owns the arbiter: every request, reading, death and look at the state
// takes it for microseconds, and nothing that can block is done under it.
//
// Order of start: configuration, socket (whoever holds its lock is the daemon),
// state file, devices, what survived, mount, readiness, clients. Order of stop:
// the reverse; the state file stays, so that programs go on and the next daemon
// takes them up again.
package daemon
