// Package worker is the daemon's side of its unprivileged processes. Such a process, a worker, is a second gpuarbd without privileges. One
// serves the page (package web), and another keeps the history of jobs (package archive).
//
// The main type is Keeper, of which the daemon has one for each worker. It starts the worker and watches its heartbeats. Set, Is and Kill
// may be called from any goroutine; Run, which locks its goroutine to a thread, does the rest.
//
// The daemon opens the listening socket and passes it on, so that the socket may use a port below
// 1024, or lie in a folder of root. The daemon never accepts or reads there. The kernel kills the
// worker when the daemon ends; a worker that Drains ends by itself when its standard input ends. A worker that dies is restarted. While there is no worker, no
// process listens.
package worker
