// Package threads counts the objects that each thread of a program has made on a device and not given back. It is used if slots belong to
// threads. Its main type is [Set]. No count is negative: objects that a thread does not have are taken from other threads. A program
// chooses the numbers of its threads, so that the caller must bound how many are tracked. Few operations go through all threads. The
// package does not decide who gets a slot: the arbiter does. A Set is not safe for concurrent use.
package threads
