//go:build !faults

package faults

// This file has At for binaries that users run. The daemon, package shim and package statefile
// call it. armed.go has At for tests.

// At marks a place at which a daemon with the build tag "faults" can be ended. Here it does
// nothing.
func At(string) {}
