// Package rig gives each end-to-end test a machine of its own: a temporary
// folder with a simulated driver's state, a socket, a mount, and a real gpuarbd
// that serves them. Programs run on it unmodified, under `gpuarb run` or with the
// bare preload. Its main type is Machine. Machine.Held is the oracle of most tests: the
// simulated driver's own count of what each process holds.
//
// make builds all programs into build/ before the tests run. If a program is
// missing there, the test fails with the make command that builds it.
package rig
