// Package gpufs serves the state of the daemon as a filesystem, for cat and its
// like. docs/reference/gpufs.md is the reference for its users.
//
// The tree is made when it is looked at: every lookup, listing and first read asks
// the View for a snapshot, and no answer is cached by the kernel. What is read at
// offset 0 is a fresh snapshot; the reads that follow in the same open continue it,
// so that a reader never sees two moments mixed.
//
// Handlers work from memory alone. None opens a file, makes a system call that can
// wait, or holds a lock while it talks to the kernel: a reader that stops reading
// stops nobody else, and the daemon's admission cannot notice it. One exception
// is named in Options.SelfOf, the other in Options.Metrics. Snapshots are taken one at a time, and readers that
// come in while one is taken share the next, so that many readers cost the daemon
// no more of its time than one does.
//
// This package alone imports go-fuse. It knows no socket and no policy.
//
// docs/glossary.md explains the terms.
package gpufs
