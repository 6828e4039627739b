// Package statefile keeps the daemon's state over a crash or restart of the daemon. The state is a shared mapping of
// a file in the runtime directory. It has what the daemon knows and clients must not change: granted bytes, streams,
// limits, tokens. A store to the mapping survives SIGKILL without a write or sync per grant. It does not survive a
// reboot, and need not.
//
// The main type is File: a header and seven tables of fixed-size records. The tables hold jobs, sessions, leases,
// waiting requests, live limits, threads that hold objects, and paths of cgroups with limits. The whole file (about 9
// MiB) is allocated when it is opened. If that fails, the state does not survive the daemon. Cgroups with jobs have a
// table in a second file, and suspended jobs in a third. Limits in the kernel or a driver (Walls) have a table in a
// fourth.
//
// Each lease record has room for one announced change of the credit word. The daemon announces the epoch that the
// word will have, and then swaps the word. From the epoch in the word the next daemon sees whether the swap was done,
// and finishes or withdraws the change:
//
//	announce  kind, epoch, granted afterwards   (Open = kind, last)
//	swap      the client's credit word          (in the client's page)
//	finish    Granted = granted afterwards      (Open = 0, last)
//
// A grant that goes directly to a thread changes no credit. It is recorded before its reply is sent, as are streams
// and contexts. If the client never read the reply, it does not report the grant when it resumes. Therefore the file
// records only requests that wait, which keep their place in the queue, and no requests that were decided.
//
// Locking: records are written only under the daemon's lock; Failures says what may be called without it. The package
// decides nothing.
//
// docs/glossary.md explains the terms.
package statefile
