// Package cshimtest tests libgpuarb.so from outside. Programs run with the preload on the simulated
// driver, against cshim/test/peer, a scripted daemon that logs each request. harness_test.go starts
// both. The tests need everything built (make). The C tests of single files are in cshim/test.
//
// The main types are peer, machine and program; each belongs to one test and needs no lock. The
// package tests neither the real daemon nor a real driver: tests/e2e and tests/gpu do.
package cshimtest
