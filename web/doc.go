// Package web serves the page over HTTP: what every user may ask the daemon, read-only.
//
// It runs in a process of its own without privileges (package worker) and is a client of the daemon's
// socket like any other. A watcher asks for the state and keeps the last hour of it; requests are
// answered from what the watcher has, so that readers cost the daemon nothing, however many there are.
//
// Requests are not trusted: see guard.go for which are answered at all, and limits.go for how much readers
// can use. What the daemon says about programs is not trusted either, since users choose their names and arguments.
// The page inserts them into the document as text, and its Content-Security-Policy allows no script but its own.
package web
