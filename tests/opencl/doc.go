// Package opencl runs programs of OpenCL under the real shim and the real daemon, on the system's
// loader of drivers and a driver that computes on the processor (PoCL). What a driver of that kind
// takes nobody counts but the daemon.
package opencl
