package procfacts

// This file waits for the kernel or the user database with a timeout. facts.go and names.go call it.

import "time"

// receiveWithin receives a value within a time. It waits in ten pauses: if this process itself gets no processor for
// longer than the timeout, one pause takes longer, and the value still arrives in the next one.
func receiveWithin[T any](from <-chan T, timeout time.Duration) (v T, ok bool) {
	const pauses = 10
	pause := time.NewTicker(timeout / pauses)
	defer pause.Stop()
	for range pauses {
		select {
		case v = <-from:
			return v, true
		case <-pause.C:
		}
	}
	return v, false
}
