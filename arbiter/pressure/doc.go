// Package pressure measures how long requests waited, and how long nothing ran meanwhile, as the kernel's pressure stall information does:
// totals, and averages over 10, 60 and 300 seconds. Its main type is [Tracker]. Full holds only while some holds, and totals never fall.
// The package has no clock, and does not know what waits. Each Tracker must be used by one goroutine at a time.
package pressure
