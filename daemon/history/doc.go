// Package history reports the arbiter's decisions: in the log, in the event history, which the filesystem and the
// socket show, and in systemd's journal. The main types are History and Queue.
//
// The daemon calls Note with its lock held. Note only copies events and never waits for a reader. Lines are formatted
// later, without the daemon's lock. The package decides nothing.
package history
