// Package tree walks the whole mounted filesystem, as root, as the owner of what runs and as a stranger, and holds each file against
// the reference in docs/reference/gpufs.md: its format, mode and owner, and with which error whoever may not do something is refused.
package tree
