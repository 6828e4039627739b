// Package steps does in parts what concerns thousands and would have the daemon's lock for long: limits of all jobs that are
// changed, a device that is lost. Each call does some, in the order in which it was begun: who changes his limits all the time
// keeps nobody else's from being put in force. How much a call may do is counted in looks at somebody who waits, as what it
// does besides. The package does not know what is done.
package steps
