// Package metrics turns a snapshot into metrics in the text format of Prometheus. The daemon calls
// it for the request Metrics of the socket, and for the file /gpu/metrics. The main type is
// Exporter, whose methods are safe for concurrent use. docs/reference/metrics.md is the reference
// for users.
//
// All values of one text belong to one snapshot, except those of the daemon's own process. Memory
// is in bytes, time in seconds. The number of series is bounded by the numbers of devices, users
// and rules. The configuration may add series for each job. The package serves no HTTP: package web
// does.
//
// docs/glossary.md explains the terms.
package metrics
