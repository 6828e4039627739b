// Package pressure measures how long requests waited, and how long nothing ran meanwhile, as the kernel's pressure stall information does:
// totals, and averages over 10, 60 and 300 seconds. Its main type is [Tracker]. It has no clock, and does not know what waits. Each Tracker
// must be used by one goroutine at a time.
package pressure
