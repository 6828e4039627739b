// Package figures holds what users are shown: the state of all devices, jobs, leases and waiting requests at one moment, and
// how parts of it are found. The arbiter fills a Snapshot; files, commands, the page and metrics print it.
//
// docs/glossary.md explains the terms.
package figures
