// Package e2e runs programs of other projects (ffmpeg, GStreamer, numba,
// Halide, GCC's OpenACC runtime, strace) and
// the project's own test programs under the real shim and the real daemon, on the
// simulated driver. The oracle for what a process holds is that driver's own count.
package e2e
