// Package simcuda tests the simulated driver: that it is as strict as a real one,
// that memory goes and comes as it does on a real device, and that the oracle is
// right whatever happens to the programs. It is built by build.mk; README.md says
// how to use it.
package simcuda
