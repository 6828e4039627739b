// Package upgrade replaces the daemon and the library under running programs, from the previous version
// to this one and back. The previous version is the commit named in the file previous;
// `make previous` builds it into build/previous, from this clone's history.
//
// After each step every program must get the last byte of its limit and no byte more. The
// daemon's counts must equal those of the simulated driver, which is the oracle.
package upgrade
