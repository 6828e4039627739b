// Package rig gives each end-to-end test a machine of its own: a temporary
// folder with a simulated driver's state, a socket, a mount, and a real gpuarbd
// in front of it. Programs run on it unmodified, under `gpuarb run` or with the
// bare preload. Everything is built by make before the tests run and lies in
// build/; what is missing there fails the test with the command that makes it.
package rig
