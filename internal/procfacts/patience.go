package procfacts

// This file waits for the kernel or the user database with an end. facts.go and names.go call it.

import "time"

// receive takes what comes within a time, which it waits in ten pauses: where this process itself gets
// no processor for longer than that, one of them takes longer, and the answer comes in the next.
func receive[T any](from <-chan T, timeout time.Duration) (v T, ok bool) {
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
