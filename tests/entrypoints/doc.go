// Package entrypoints shows, class by class, what the entry points that take device
// memory are charged with, in every version of them and by every way to find them:
// exact to the byte, rolled back when the driver fails, given back when it is.
//
// What is right is a constant or what the simulated driver counts by itself.
package entrypoints
