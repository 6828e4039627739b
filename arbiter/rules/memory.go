package rules

import "github.com/gpuarb/gpuarb/accounting"

// Bounds is what of a device limits can be about.
type Bounds struct {
	Device     int  // its index
	Processor  bool // it is no GPU
	Total      accounting.Bytes
	Reservable accounting.Bytes // the most that can be reserved there, with a context beside it
}

// name is how people know the device.
func (b Bounds) name() string { return accounting.DeviceName(b.Device, b.Processor) }

// Amount is a limit on the device: never more than it has, unless that is no limit.
func (b Bounds) Amount(s accounting.Size) accounting.Bytes {
	n := s.Of(b.Total)
	if n == accounting.Max {
		return n
	}
	return min(n, b.Total)
}

// Reserves is what a size reserves on the device: all that there is stands for all that can be.
func (b Bounds) Reserves(s accounting.Size) accounting.Bytes {
	if s.Max || s.PerMille >= 1000 {
		return b.Reservable
	}
	return s.Of(b.Total)
}

// least is a memory.min that was set live, beside a memory.max: what is reserved is on the device, and all that
// there is stands for all that may be held.
func (b Bounds) least(s accounting.Size, most accounting.Bytes) accounting.Bytes {
	n := min(b.Amount(s), b.Total)
	if s.Max {
		return min(n, most)
	}
	return n
}

// Memory is a budget's limits on a device with what they come from.
type Memory struct {
	accounting.Limits
	MaxBy string // who or what set Max; "": nobody, there is none
	MinBy string

	most accounting.Limits // what the owner may raise them to
}

// Unlimited are no limits.
func Unlimited() Memory {
	return Memory{Limits: accounting.Limits{Max: accounting.Max}, most: accounting.Limits{Max: accounting.Max}}
}

// Streams is how many streams each lease may have, to how many the owner may raise that,
// and who or what set it.
type Streams struct {
	Max, most int
	By        string
}

// asked lowers the limit to what a program asked for.
func (s *Streams) asked(n int, by string) {
	if n != 0 && n < s.Max {
		s.Max, s.By = n, by
	}
}
