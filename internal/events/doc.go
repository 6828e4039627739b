// Package events is the history of the daemon's decisions: lines of JSON in bounded memory. Each
// line has an offset in bytes, which counts from the start of the daemon and only grows. The main
// types are Event, which is a line, and Log, which keeps the lines.
//
// Package daemon writes the history; the filesystem, the socket and systemd's journal get it. A Log
// has one mutex, which no method holds while it waits. The package does not store lines on disk, so
// a new daemon starts with an empty history. docs/reference/events.md describes the lines.
//
// docs/glossary.md explains the terms.
package events
