// Package bounded starts the programs of tests so that none of them can hold a
// test up. Each has a limit; past it the test fails by itself, says what every
// thread of the program was doing, and the program is killed with all that it
// started, so that whoever waits for it, or reads what it writes, goes on. What is
// left when the test ends is killed too.
package bounded
