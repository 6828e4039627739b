// Package shim is the Go side of a shimmed process: its credit words (Words),
// with every change announced in the state file before it is made, and how a
// program is started under the shim (Launch).
//
// The pages are memfds that the daemon made and sealed. A client can write
// anything into its page at any moment; nothing read from it is believed beyond
// what can be clamped, and a fault in one page costs only that page's owner.
//
// docs/glossary.md explains the terms.
package shim
