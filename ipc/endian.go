//go:build !(amd64 || arm64 || riscv64 || loong64 || ppc64le || mips64le)

package ipc

// Messages are copied between memory and wire as they are, which is right on
// 64-bit little-endian machines alone. Elsewhere this line does not compile.
const _ uint = -1 // gpuarb builds for 64-bit little-endian machines only
