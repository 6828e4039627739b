// Package queue keeps those who wait in order: a [Queue] in the one in which they are served, a [Heap] in the one in
// which time alone brings something about for them. Which order that is says whoever makes one; what waits it does not know.
package queue
