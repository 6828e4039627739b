// Package cshimtest tests libgpuarb.so from outside: programs run under the
// preload on the simulated driver, against cshim/test/peer, a scripted daemon that
// says what it was asked for. Everything must have been built before (make).
package cshimtest
