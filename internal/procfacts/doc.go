// Package procfacts reads the kernel's facts about processes, mounts and the machine from /proc, for the daemon, the
// filesystem and the commands. It needs no cgo, and asks no device.
//
// The main types are [Root], which reads files from the kernel's own memory without blocking, and [Reader], which also
// reads files with a process's memory behind them: arguments, environment, mappings. A process can delay such a read for
// as long as it holds its own address space, so that Reader bounds each wait.
//
// Invariants: facts of one call are about one process, never about a later one with its PID. Locking: Reader guards its
// caches with mutexes that it never holds during a read. Callers must not hold a lock that admission needs.
//
// The package decides nothing about a process. Only this package imports prometheus/procfs.
package procfacts
