// Package processes shows that what a process does to itself while it uses the GPU is
// as without the shim, and is counted right: it loses threads, forks, becomes another
// program, closes its descriptors, gives up its rights, locks itself in, is interrupted
// by signals, and ends in every way there is. The stories are those of
// tests/programs/processes.h; each is told first without the shim and then with it.
package processes
