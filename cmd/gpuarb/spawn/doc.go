// Package spawn starts a program as env(1) would: with the signal dispositions, the signal mask,
// the descriptors and the limits that this process was started with. The main type is Program.
// cmd/gpuarb is the only user.
//
// Go's runtime changes some of these before main. It installs handlers for nearly all signals,
// opens /dev/null in place of a closed standard descriptor, and raises the soft limit of open
// files. So start.c, which is C, runs before Go's runtime and records these values. Later it starts
// the program with them. The recorded values never change, so they need no lock. The package does
// not wait for programs and forwards no signals.
package spawn
