// Package filegraph says which files of a Go package use what others of its files define, by the compiler's word.
package filegraph
