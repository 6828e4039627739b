// Package stress crowds one machine: many processes and threads allocate and
// free at random under one budget, while some are killed without warning. The oracle for
// the sums at the end is the simulated driver's count.
package stress
