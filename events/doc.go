// Package events is the history of what a daemon decided: lines of JSON in a bounded memory, each at an offset
// in bytes that counts from the daemon's start and never gets smaller. Package daemon writes it; the filesystem,
// the socket and the journal read it. What a line says is in docs/reference/events.md.
//
// docs/glossary.md explains the terms.
package events
