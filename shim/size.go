package shim

// This file converts sizes and limits between the types of package accounting and those of
// messages and records.

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// WireSize returns a size in the form of messages and records. This is bytes and share 0, or
// [ipc.NoLimit] and a share in thousandths; share 0 then means no limit.
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

// SetLimit writes a limit into a request, from its name and the value that a user wrote. The value
// "max" means no limit for slots.max, and for streams.max of a user.
func SetLimit(r *ipc.LimitRequest, name, value string) (err error) {
	var size accounting.Size
	count := 0
	switch name {
	case "slots.max":
		r.Set |= ipc.SetSlots
		if value != "max" {
			count, err = accounting.ParseCount(value)
		}
		r.Slots = uint32(count)
	case "streams.max":
		r.Set |= ipc.SetStreams
		if count = ipc.NoStreams; value != "max" || r.Target != ipc.LimitUser {
			count, err = accounting.ParseCount(value)
		}
		r.Streams = uint32(count)
	case "memory.max":
		r.Set |= ipc.SetMax
		size, err = accounting.ParseSize(value)
		r.Max, r.MaxShare = WireSize(size)
	case "memory.min":
		r.Set |= ipc.SetMin
		size, err = accounting.ParseSize(value)
		r.Min, r.MinShare = WireSize(size)
	}
	return err
}
