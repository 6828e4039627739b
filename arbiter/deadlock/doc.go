// Package deadlock finds those who wait for each other in a circle. It knows parties, limits and
// requests, and nothing of the arbiter, which makes the graph from its own state: so a graph
// can be searched without the daemon's lock.
package deadlock
