// Package errand carries out what the arbiter decides about the memory of idle jobs. A Hook is the command evict.suspend or
// evict.resume, which asks a job's programs to give their GPU memory back or to take it again. A Unit is a systemd service to stop or
// start. daemon/evict.go calls it, from one goroutine for each errand. The package reports whether the command or the service did what
// was asked. The arbiter finds out from its own figures whether the job gave memory back.
package errand
