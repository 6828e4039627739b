// Package gpufs serves the state of the daemon as a filesystem.
package gpufs
