// Package soak has the daemon die, over and over, under programs that must not notice: at
// each step of what it does (the places that package faults names), at random moments under
// a crowd of them, and for as long as one likes together with everything else that can go
// wrong (`make soak FOR=20m`).
//
// What it is held to is always the same: no program fails, none puts out anything else than
// it would alone, one byte over a limit is refused at any time, and what the daemon counts is
// what the simulated driver does.
package soak
