// Package history tells what the arbiter decided: in the log, in the event history, which the filesystem and the socket show, and
// in systemd's journal. Whoever decides waits for none of them.
package history
