// Command gpuarbd is the daemon. It owns the flags, the signals and the exit codes. Package daemon
// has all other logic. The same program also serves the page, in a process that the daemon starts
// (package web).
//
// It has no main type and no lock: main runs one daemon, and one more goroutine calls Reload at
// each SIGHUP. It decides nothing about memory or devices.
package main
