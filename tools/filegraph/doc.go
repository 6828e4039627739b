// Package filegraph finds which files of a Go package use declarations of other files of the
// package. It asks the compiler's type checker. tools/shape and tests/structure call it. Exports
// and Uses keep nothing between calls, so that the package has neither a type nor a lock. It
// changes no file, and does not judge the uses: its callers look for cycles.
package filegraph
