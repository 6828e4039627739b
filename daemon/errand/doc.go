// Package errand runs the commands by which an idle job gives its memory back and takes it again (evict.suspend and evict.resume), and stops
// and starts systemd services. The main types are Hook and Unit. daemon/evict.go calls it, from a goroutine for each errand. The package does
// not judge whether the job did what it was asked.
package errand
