// Package pressure adds up for how long somebody waited, and for how long nobody went on, as the kernel's
// pressure stall information does: totals, and averages over 10, 60 and 300 seconds. It has no clock and
// knows nothing of who waits.
package pressure
