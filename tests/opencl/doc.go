// Package opencl runs OpenCL programs under the real library and the real daemon, with the system's
// OpenCL loader and a driver that computes on the CPU (PoCL). Only the daemon counts the memory of
// such a driver, so the expected values are the sizes that the programs ask for.
package opencl
