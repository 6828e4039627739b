//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le || mips64le)

package ipc

// This file makes the build fail on big-endian and 32-bit machines. layout.go has the layouts that need this.

// Messages are copied between memory and wire without conversion, which is correct on 64-bit little-endian machines
// only. On other machines the next line does not compile.
const _ uint = -1 // gpuarb builds for 64-bit little-endian machines only
