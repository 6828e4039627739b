package rules

import "github.com/gpuarb/gpuarb/accounting"

// This file has the limits of memory and streams with their sources, and the figures of a device that they depend on. job.go, rule.go and
// table.go compute them.

// Bounds has the figures of a device that limits depend on.
type Bounds struct {
	Device     int  // index of the device
	Processor  bool // the device is the processor
	Total      accounting.Bytes
	Reservable accounting.Bytes // most bytes that can be reserved, with a context in addition
}

// name returns the name of the device for messages.
func (b Bounds) name() string { return accounting.DeviceName(b.Device, b.Processor) }

// Amount returns a limit on the device in bytes, at most Total; Max: no limit.
func (b Bounds) Amount(s accounting.Size) accounting.Bytes {
	n := s.Of(b.Total)
	if n == accounting.Max {
		return n
	}
	return min(n, b.Total)
}

// Reserves returns the bytes that a size reserves on the device. "max" reserves all that can be reserved.
func (b Bounds) Reserves(s accounting.Size) accounting.Bytes {
	if s.Max || s.PerMille >= 1000 {
		return b.Reservable
	}
	return s.Of(b.Total)
}

// least returns the bytes of a live memory.min on the device. "max" reserves all that may be held (most).
func (b Bounds) least(s accounting.Size, most accounting.Bytes) accounting.Bytes {
	n := min(b.Amount(s), b.Total)
	if s.Max {
		return min(n, most)
	}
	return n
}

// Memory has the limits of a budget on a device, and their sources.
type Memory struct {
	accounting.Limits
	MaxBy string // source of Max; "": there is no limit
	MinBy string

	most accounting.Limits // values up to which the owner may raise the limits
}

// Unlimited returns limits that limit nothing.
func Unlimited() Memory {
	return Memory{Limits: accounting.Limits{Max: accounting.Max}, most: accounting.Limits{Max: accounting.Max}}
}

// Streams is the limit of streams of each lease, the value up to which the owner may raise it, and its source.
type Streams struct {
	Max, most int
	By        string
}

// asked lowers the limit to the one that a program asked for.
func (s *Streams) asked(n int, by string) {
	if n != 0 && n < s.Max {
		s.Max, s.By = n, by
	}
}
