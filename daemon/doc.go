// Package daemon composes the parts: configuration, devices, the state that
// outlived the last daemon, the socket, the filesystem. It owns the one lock
// that owns the arbiter: every request, reading, death and look at the state
// takes it for microseconds, and nothing that can block is done under it.
//
// A request that must wait is parked (queue.go): its connection is read on, and the
// answer is sent when the arbiter has decided, by a goroutine that waits for nobody. It has
// a row in the state file, so that order outlives the daemon (recoverqueue.go).
//
// Order of start: configuration, socket (whoever holds its lock is the daemon),
// state file, devices, what survived, mount, readiness, clients. Order of stop:
// the reverse; the state file stays, so that programs go on and the next daemon
// takes them up again. Stop may come at any moment, also during the start, and waits
// for no device (stop.go).
//
// Each device has a goroutine that reads it (reader.go), and nothing else asks a
// driver: one that hangs holds up its own figures alone.
//
// The files, from the bottom up. A file uses files that stand before it, and none that stands after it:
//
//   - what knows no daemon: errors, goroutines, machine, options, lastgood, bounds, asker, pages, watched, session, ended, outgoing, looks, texts,
//     probe;
//   - the daemon and what its lock guards: daemon;
//   - functions that are called with the lock held. Devices: devices. Limits: cgroups, keptlimits, given. Objects of threads: threads. Jobs and
//     sessions: jobs, sessions. Requests that wait, and grants that were not read: queue, undelivered. Panics: broken. The lock,
//     and how decisions are carried out as it is given back: lock;
//   - limits: shown, folders, setlimit, frompages;
//   - devices: beside, reclaim, idle, reader, scan;
//   - the ends of processes: orphans, ends;
//   - requests of clients: replies, snapshots, events, metrics, hello, resume, jobopen, tally, attach, admit, cancel;
//   - time: tick;
//   - recovery: found, recoverqueue, recover;
//   - the whole: serve, systemd, reload, duties, stop, statefiles, start.
//
// docs/glossary.md explains the terms.
package daemon
