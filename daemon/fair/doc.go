// Package fair divides the daemon between users, so that no user can take all of it. It has four parts: Turns orders
// the requests of processes and users, Changes limits how often limits are changed, Paced limits how often a shared
// text is made, and Quota limits how much is logged or looked up in a period. A request waits for at most one request
// of each other user, and of each other process of its own user.
//
// Turns, Changes and Paced have their own locks and are safe for concurrent use. Quota is not: its user guards it.
// The package knows nothing about the content of requests.
package fair
