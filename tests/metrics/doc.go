// Package metrics compares the metrics of a running daemon with the simulated driver's count and with the reference page.
// It also checks that the Grafana board, the alert rules and dcgm-exporter's files ask only for
// series that the daemon exports.
package metrics
