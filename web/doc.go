// Package web serves the page over HTTP: what every user may ask the daemon, read-only.
//
// It runs in a process of its own without privileges (package worker) and is a client of the
// daemon's socket as any program is. The main type is server. A watcher asks the daemon for its
// state and keeps the last week of it. Requests are answered from what the watcher has, so the
// number of readers does not matter to the daemon. The watcher and the reader of the event history
// each have a goroutine; the types that they share with requests have a mutex each.
//
// Requests are not trusted: guard.go says which requests are answered, and limits.go how much
// readers can use. Text about programs is not trusted either, because users choose names and
// arguments. The page inserts it into the document as text. Its Content-Security-Policy allows only
// its own scripts.
//
// The package changes nothing: it offers no limits, no signals and no cancelling.
package web
