// Command gpuarbd is the daemon. It has flags, signals and exit codes, and no
// logic of its own: package daemon has that.
package main
