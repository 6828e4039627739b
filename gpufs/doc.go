// Package gpufs serves the daemon's state as a filesystem, for cat and other programs that read files. Users find its
// reference in docs/reference/gpufs.md.
//
// The main type is [Server], a mounted filesystem. The daemon gives it a [View] for the state and a [Control] for the
// writes to limits.
//
// Invariants: every lookup, listing and first read takes a snapshot from the View, and the kernel caches no answer. A
// read at offset 0 takes a fresh snapshot, and the following reads of that open continue it, so that a reader never
// sees two moments mixed.
//
// Handlers work from memory. They open no file and make no system call that can wait, so that a reader that stops
// reading stops neither other readers nor the daemon's admission. Options.SelfOf, Options.Standing and Options.Metrics
// name the exceptions. The View combines simultaneous requests, so that many readers cost the daemon about as much as
// one.
//
// Locking: an open file has a mutex for its content, and the snapshots have one for the newest snapshot. No lock is
// held during a call to the kernel.
//
// Only this package imports go-fuse. It knows neither the socket nor the rules of admission. docs/glossary.md explains
// the terms.
package gpufs
