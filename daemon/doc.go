// Package daemon is gpuarbd itself: it connects the configuration, the devices, the state file, the socket, the
// filesystem and the arbiter.
//
// The main type is Daemon. Start makes it, Stop ends it, and Reload reads the configuration again. The package
// decides nothing about memory: package arbiter decides, and this package asks it, carries the decisions out and
// records them.
//
// Locking: Daemon.mutex guards the arbiter and all tables of the daemon. Each request, each reading of a device, each
// end of a process and each snapshot takes the mutex for microseconds. No operation that can block runs while it is
// held. A function whose name ends in Locked requires that its caller holds the mutex.
//
// A request that must wait is parked (queue.go): the goroutine of its connection still reads. When the arbiter has
// decided, unlock sends the reply without waiting for the client. A waiting request has a row in the state file, so
// that the order of the queue survives the daemon (recoverqueue.go).
//
// Order of start: configuration, socket (a process that holds the socket's lock is the daemon), state file, devices,
// recovery of what the last daemon left, mount, readiness, clients. Stop runs in the reverse order. The state file
// stays, so that programs continue and the next daemon resumes their sessions. Stop may be called at any moment, also
// during the start, and waits for no device (stop.go).
//
// Each device has a goroutine that reads it (reader.go). No other goroutine asks a driver, so that a driver that
// hangs delays only the figures of its own device.
//
// The files, from the bottom up. A file uses only files that are listed before it:
//
//   - without knowledge of Daemon: errors, goroutines, machine, options, lastgood, bounds, privileges, pages,
//     watched, session, endedjobs, outgoing, accesstimes, snapshotcache, probe, feed, archiverows;
//   - the daemon and the data that its lock guards: daemon;
//   - functions that are called with the lock held. Devices: devices. Limits: cgroups, keptlimits, publishlimits.
//     Objects of threads: threads. Jobs and sessions: jobs, sessions. Waiting requests and undelivered grants: queue,
//     undelivered. Suspended jobs: suspensions. Panics: panics. The lock, and how decisions are carried out when it is released: lock;
//   - limits: freememory, folders, setlimit, recoverpages. Jobs of cgroups: bindings;
//   - devices: bypass, reclaim, idle, reader, scan;
//   - ends of processes: orphans, processend;
//   - suspended jobs: evict;
//   - requests of clients: replies, snapshots, events, metrics, hello, resume, jobopen, bind, tally, attach, admit, cancel;
//   - limits of the kernel or the vendor's driver: driverlimits;
//   - time: tick. The history of jobs: archive;
//   - recovery: savedsuspensions, savedprocesses, recoverqueue, recoverbindings, recoversuspensions, recover;
//   - start and stop of the daemon: serve, systemd, reload, loops, stop, statefiles, start.
//
// docs/glossary.md explains the terms.
package daemon
