// Package demo opens the playground (playground.sh) on a terminal, as `make playground` does. The oracle is what the terminal shows, and what
// the kernel says is left afterwards: processes, mounts and files. The package structure checks demo.sh.
package demo
