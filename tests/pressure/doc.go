// Package pressure holds memory.pressure against a truth that the test computes itself: it plays schedules of waiting
// and running with unmodified programs, the real daemon and the simulated driver, and notes when what surely had begun
// and ended.
package pressure
