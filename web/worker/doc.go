// Package worker is the daemon's side of the process that serves the page (package web): a second gpuarbd without
// privileges, which learns of GPUs only what the daemon's socket tells every user. The daemon runs a Keeper.
//
// The daemon opens the listening socket (so that it may be a port below 1024, or in a folder of root's) and
// hands it down; it never accepts or reads there. The worker ends with the daemon, however the daemon ends, and is
// restarted when it dies. While there is none, nothing listens.
package worker
