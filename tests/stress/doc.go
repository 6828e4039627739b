// Package stress crowds one machine: many processes and threads that allocate and
// free at random under one budget while some are killed without warning, and holds
// the sums at the end against the simulated driver's.
package stress
