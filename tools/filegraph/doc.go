// Package filegraph finds which files of a Go package use declarations of other files of the
// package. It asks the compiler's type checker. tools/shape and tests/structure call it. It changes
// no file.
package filegraph
