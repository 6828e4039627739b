// Package statefile is the daemon's own memory that survives it: a shared mapping
// in the runtime directory with what the daemon knows and clients must not say
// (granted bytes, streams, limits, tokens). A store to it outlives SIGKILL with
// no write or sync per grant; it does not outlive a reboot, nor has it to.
//
// The file is a header and seven tables of fixed-size records: jobs, sessions,
// leases, requests that wait, limits that were changed live, the threads that hold something, and the
// paths of cgroups with limits. All of it (about 9 MiB) is allocated when it is opened; if there is no room, nothing survives the daemon.
// Each lease record has room for one announced change. A change of a credit word is announced with the
// epoch that the word will have before the word is swapped; the next daemon sees
// from the word's epoch whether it was done, and finishes or undoes it:
//
//	announce  kind, epoch, granted afterwards   (Open = kind, last)
//	swap      the client's credit word          (in the client's page)
//	finish    Granted = granted afterwards      (Open = 0, last)
//
// A grant that goes straight to a thread changes no credit, and is written down before its answer
// goes out; so are streams and contexts. What the client never heard of it does not say that it has
// when it resumes, and no request has to be remembered.
//
// Records are written only under the daemon's lock. Nothing here decides anything.
//
// docs/glossary.md explains the terms.
package statefile
