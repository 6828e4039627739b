// Package spawn starts a program as env(1) would: with the signal dispositions, the signal mask,
// the descriptors and the limits that this process itself was started with.
//
// Go's runtime changes some of these before main: it installs handlers for nearly all signals,
// opens /dev/null in the place of a standard descriptor that is closed, and raises the soft limit
// of open files. So a few lines of C (start.c) run earlier and note what there was, and the same
// file starts the program. cmd/gpuarb is the only user.
package spawn
