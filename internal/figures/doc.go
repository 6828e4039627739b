// Package figures holds the state that users see: all devices, jobs, leases and waiting requests at
// one time. It also finds parts of that state. The main type is Snapshot. The arbiter fills a
// Snapshot; files, commands, the page and the metrics print it (package report formats it).
//
// A Snapshot is a copy: nothing in it refers to the ledger, so no lock is needed to read it. A
// goroutine must be its only user while it changes a Snapshot. The package decides nothing and reads
// no files.
//
// docs/glossary.md explains the terms.
package figures
