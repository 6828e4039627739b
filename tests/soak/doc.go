// Package soak kills the daemon again and again under programs that must not notice: at
// each fault point (a call of faults.At in the source), at random moments under
// a crowd of programs, and for any time together with all other faults
// (`make soak FOR=20m`).
//
// The oracle is the same in all tests: no program fails, every program's output is as in an undisturbed
// run, one byte over a limit is refused at any time, and the daemon's counts equal the simulated
// driver's.
package soak
