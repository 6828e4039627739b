// Package gpu runs programs under the preload on a real GPU, and measures what only a
// real driver can tell: what contexts and streams cost, how it rounds, how soon a dead
// process's memory is back.
//
// `make test-gpu` runs it, with the build tag gpu. What needs the driver alone runs
// on the simulated one as well, in every `go test ./...`, so that it works on the day
// when there is a GPU. What is measured is printed, never compared with a number.
package gpu
