// Package web serves the page: what everybody may ask the daemon, over HTTP, to be read and never to
// be changed.
//
// It runs in a process of its own without privileges (package worker) and is a client of the daemon's
// socket like any other. A watcher asks for the state and keeps the last hour of it; requests are
// answered from what the watcher has, so that readers cost the daemon nothing, however many there are.
//
// What comes in is not trusted: see guard.go for who is answered at all, and limits.go for how much one
// reader can take. What the daemon says about programs is not trusted either: their names are whatever their users
// like. The page puts them into the document as text alone, and its policy lets no script in but its own.
package web
