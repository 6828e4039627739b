// Command testsum reads the output of go test -json, shows what matters of it
// (one line a package, the whole output of what failed or was skipped), and ends
// with the line
//
//	N passed, N failed, N skipped
//
// which counts tests and subtests. Steps that were run by something else are
// added with -passed and -failed; -show names lines of tests that pass which are
// wanted too, and -times says how long each test took. The exit status is 0 when something passed and
// nothing failed or was skipped: a test that steps aside proves nothing.
package main
