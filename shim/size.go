package shim

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// WireSize spells a size as messages and records do: bytes and no share, or [ipc.NoLimit] and
// a share in thousandths, 0 for no limit.
func WireSize(size accounting.Size) (bytes uint64, share uint32) {
	if size.IsAbsolute() {
		return uint64(size.Bytes), 0
	}
	if size.Max {
		return ipc.NoLimit, 0
	}
	return ipc.NoLimit, size.PerMille
}

// SizeOf is the inverse of [WireSize].
func SizeOf(bytes uint64, share uint32) accounting.Size {
	if bytes != ipc.NoLimit {
		return accounting.Size{Bytes: accounting.Bytes(bytes)}
	}
	return accounting.Size{PerMille: share, Max: share == 0}
}
