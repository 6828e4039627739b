// Package shim is the Go side of programs that run with the library. It has two parts. Launch is
// how a program is started with the library: cmd/gpuarb and package preload use it. Lease is the
// daemon's access to the lease page of a client: package daemon uses it, and the arbiter calls it
// as arbiter.CreditWord.
//
// Each change of a credit word is announced in the state file before it is made, so that the next
// daemon can tell which changes were completed. The daemon's lock guards Words and Lease. Clients
// change the same page at any time, so each change of a word is a compare-and-swap. If that fails
// too often, Lease.change takes the credit away first and announces the change afterwards.
//
// The pages are memfds that the daemon has made and sealed. A client can write anything into its
// page at any time. Values from a page are clamped before use, and a fault in a page affects only
// the page's owner. The package decides nothing about limits.
//
// docs/glossary.md explains the terms.
package shim
