// Package history tests the history of jobs as users see it: what `gpuarb report`, `gpuarb history`, `gpuarb why` and `gpuarb suggest` say of
// jobs that have ended. The expected values are what the programs of the tests allocated, times the time that the tests measured.
package history
