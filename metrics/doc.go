// Package metrics turns a snapshot of the ledger into metrics in the text format of Prometheus. The daemon calls it for
// the socket's Metrics request and for the file metrics of the filesystem; docs/reference/metrics.md is the reference for users.
//
// All values of one text are of one moment, except those of the daemon's own process. Memory is in bytes, time in seconds.
// The number of series is bounded by what there is of devices, users and rules, unless the configuration asks for those
// of jobs.
//
// docs/glossary.md explains the terms.
package metrics
