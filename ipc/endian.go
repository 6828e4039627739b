//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le || mips64le)

package ipc

// Messages are copied between memory and wire without conversion, which is correct on 64-bit little-endian machines
// only. On other machines the next line does not compile.
const _ uint = -1 // gpuarb builds for 64-bit little-endian machines only
