// Package upgrade changes daemon and library under programs that run, from the version
// before to this one and back. The version before is the commit named in the file previous;
// `make previous` builds it into build/previous, from this clone's history.
//
// At each step every program has to get the last byte inside its limit and not the one after
// it, and what the daemon counts has to be what the simulated driver does.
package upgrade
