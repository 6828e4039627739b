// Package worker is the daemon's side of the process that serves the page (package web). That
// process is a second gpuarbd without privileges. About GPUs it learns only what the daemon's
// socket tells every user.
//
// The main type is Keeper, which the daemon runs. It starts the worker and watches its heartbeats.
// Set and Is may be called from any goroutine; one goroutine, locked to its thread, does everything
// else.
//
// The daemon opens the listening socket and passes it on, so that the socket may use a port below
// 1024, or lie in a folder of root. The daemon never accepts or reads there. The worker ends with
// the daemon, however the daemon ends, and is restarted when it dies. While there is no worker, no
// process listens.
package worker
