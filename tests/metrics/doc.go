// Package metrics holds what a running daemon exports against the driver, against the reference, and against what asks for it: the board, the alerts
// and dcgm-exporter's files.
package metrics
