// Package gpu runs programs under the preload on a real GPU, and measures figures that only a
// real driver has: the memory of contexts and streams, its rounding, and how soon a dead
// process's memory is free. The oracle is the real driver.
//
// `make test-gpu` runs it, with the build tag gpu. Tests that need no real driver run
// on the simulated one as well, in every `go test ./...`, so that they stay valid on machines without
// a GPU. Measured values are printed, never compared with a number.
package gpu
