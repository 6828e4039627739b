// Package simcuda tests the simulated driver. It must be as strict as a real driver, its memory
// must be taken and freed as on a real device, and the oracle must be right whatever happens to the
// programs. build.mk builds the driver; README.md says how to use it.
package simcuda
