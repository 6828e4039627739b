// Package worker keeps the process that serves the page: a second gpuarbd without any privilege, which
// knows of GPUs only what the daemon's socket tells everybody.
//
// The daemon opens the address (so that it may be a port below 1024, or a socket in a folder of root's), and
// hands it down; it reads nothing of what comes in there. The worker ends with the daemon,
// whatever ends that, and is started again when it dies.
package worker
