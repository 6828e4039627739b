// Package entrypoints shows, class by class, what the entry points that take device
// memory are charged with, in every version of them and by every way to find them.
// A charge is exact to the byte, is rolled back if the driver fails, and ends with the memory.
//
// The tests drive unmodified programs under the real shim and daemon. Their oracle is a constant
// or the count of the simulated driver.
package entrypoints
