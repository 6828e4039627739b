// Package e2e runs programs that nobody here wrote (ffmpeg, GStreamer, numba,
// Halide, GCC's OpenACC runtime, strace) and
// the project's own test programs under the real shim and the real daemon, on the
// simulated driver. What a driver holds is always that driver's own count.
package e2e
