// Package processes runs programs that change their own process while they use the GPU:
// they lose threads, fork, become another program, close their descriptors, give up their rights,
// enter a sandbox, get signals, and end in every possible way. tests/programs/processes.h has these
// stories. Each story runs first without the shim and then with it. The oracle is the
// output without the shim, and the simulated driver's own count.
package processes
