// Package evict tests that idle jobs give their memory back when another program waits for it, and surely get it again: with a real daemon,
// real programs, real hooks, and the count of the simulated driver as the oracle.
package evict
