// Command testsum reads the output of go test -json and shows what matters: a line for each
// package, and the complete output of tests that failed or were skipped. It ends with the line
//
//	N passed, N failed, N skipped
//
// which counts tests and subtests. -passed and -failed add steps that other programs ran. -show
// names lines of passing tests that are shown too, and -times shows how long each test took. The
// exit status is 0 if something passed and nothing failed or was skipped, because a skipped test
// proves nothing.
//
// The main type is summary, which one goroutine uses without a lock. The command runs no tests.
package main
