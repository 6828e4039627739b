// Package tree reads and writes every file of the mounted filesystem as root, as the owner of a job and as a stranger. The oracle is
// the reference in docs/reference/gpufs.md: the format, mode and owner of each file, and the error of each refused access.
package tree
