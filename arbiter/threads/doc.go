// Package threads counts what each thread of a program has made on a device and not given back, where slots are threads'.
// A program numbers its threads as it likes: how many are remembered is the caller's to bound, and nothing goes through
// all of them that does not have to.
package threads
