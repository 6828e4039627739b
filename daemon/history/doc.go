// Package history reports the arbiter's decisions: in the log, in the event history, which the filesystem and the
// socket show, and in systemd's journal. The history of jobs belongs to package archive. The main types are History and Queue.
//
// The daemon calls Note with its lock held. Note only copies events and never waits for a reader. Lines are formatted
// later, without the daemon's lock, in the order in which they were noted. The number of copied events is bounded;
// further events are counted. Locking: History.mu guards the copies, and may be acquired with the daemon's lock held.
// History.writing orders the lines, is acquired before mu, and never with the daemon's lock held. The package decides
// nothing.
package history
