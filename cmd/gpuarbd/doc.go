// Command gpuarbd is the daemon. It owns the flags, the signals and the exit codes. Package daemon
// has all other logic. The same program also serves the page, in a process that the daemon starts
// (package web).
package main
