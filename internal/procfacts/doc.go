// Package procfacts says what the kernel knows about processes, mounts and the machine itself: procfs, read for
// daemon, filesystem and command alike. It needs no cgo, and asks no device.
//
// What is behind a process's own memory (its arguments, its environment, its mappings) may be
// held up for as long as that process holds it; a [Reader] bounds its waits. Neither may be asked
// for with a lock held that admission needs.
//
// This package alone imports prometheus/procfs.
package procfacts
