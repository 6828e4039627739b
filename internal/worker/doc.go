// Package worker is the daemon's side of its unprivileged processes. Such a process is a second gpuarbd without privileges: one serves the
// page (package web), another keeps the history (package archive).
//
// The main type is Keeper, of which the daemon has one for each process. It starts the worker and watches its heartbeats. Set, Is and Kill
// may be called from any goroutine; one goroutine, locked to its thread, does everything else.
//
// The daemon opens the listening socket and passes it on, so that the socket may use a port below
// 1024, or lie in a folder of root. The daemon never accepts or reads there. The worker ends with
// the daemon, however the daemon ends, and is restarted when it dies. While there is no worker, no
// process listens.
package worker
