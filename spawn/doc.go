// Package spawn starts a program as env(1) would: with the signal dispositions, the signal mask,
// the descriptors and the limits that this process itself was started with.
//
// Go's runtime changes some of these before main: it installs handlers for nearly all signals,
// opens /dev/null in the place of a standard descriptor that is closed, and raises the soft limit
// of open files. So start.c, which is C, runs before Go's runtime and notes these values, and later
// starts the program with them. cmd/gpuarb is the only user.
package spawn
