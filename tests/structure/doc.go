// Package structure tests how the tree is put together: which package may import
// which and why, that each package says what it is, that units and documents keep
// their promises, and that each required behaviour has its test and its mutant.
//
// The rules are tables with a reason in each row; a failure prints the reason.
package structure
