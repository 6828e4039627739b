package rules

import (
	"cmp"
	"maps"

	"github.com/gpuarb/gpuarb/accounting"
)

// Live is what was changed of limits since they were first in force: by device index, and
// under AllDevices for devices without an entry of their own.
type Live struct {
	on      map[int]changedMemory
	streams changed[int]
}

// changedMemory is what was changed on one device.
type changedMemory struct{ min, max changed[accounting.Size] }

// changed is a limit that was changed: by somebody privileged, whose word takes the place of
// the rule's, and by the owner, who stays within that.
type changed[T any] struct{ forced, own setting[T] }

// setting is a limit as somebody set it; with value nil nobody did.
type setting[T any] struct {
	value  *T
	by     string // who
	lowers bool   // it never raises anything
}

// with returns c with a new setting: the last word counts.
func (c changed[T]) with(s setting[T], force bool) changed[T] {
	if force {
		return changed[T]{forced: s}
	}
	c.own = s
	return c
}

// of returns what was set for a device.
func (v Live) of(device int) changedMemory {
	if l, ok := v.on[device]; ok {
		return l
	}
	return v.on[AllDevices]
}

// Max is the memory.max that was set last on all devices; nil: none was.
func (v Live) Max() *accounting.Size {
	set := v.of(AllDevices).max
	return cmp.Or(set.own.value, set.forced.value)
}

// With returns v with a change written over it. What somebody privileged once set
// stays free of the rule when the owner lowers it further. By is who makes the change.
func (v Live) With(c Change, force bool, by string) Live {
	if c.Streams != nil {
		v.streams = v.streams.with(setting[int]{c.Streams, by, c.Lowers}, force)
	}
	if c.Min == nil && c.Max == nil {
		return v
	}
	set := func(l changedMemory) changedMemory {
		if c.Max != nil {
			l.max = l.max.with(setting[accounting.Size]{c.Max, by, c.Lowers}, force)
		}
		if c.Min != nil {
			l.min = l.min.with(setting[accounting.Size]{c.Min, by, c.Lowers}, force)
		}
		return l
	}
	on := make(map[int]changedMemory, len(v.on)+1)
	maps.Copy(on, v.on)
	on[c.Device] = set(v.of(c.Device))
	if c.Device == AllDevices {
		for index, l := range on {
			if index != AllDevices {
				on[index] = set(l)
			}
		}
	}
	v.on = on
	return v
}

// keepsAll reports whether memory.min was set to all that there is.
func (v changedMemory) keepsAll() bool {
	set := cmp.Or(v.min.own.value, v.min.forced.value)
	return set != nil && set.Max
}

// change puts what was set live in force.
func (m *Memory) change(v changedMemory, b Bounds) {
	if f := v.max.forced; f.value != nil {
		m.Max, m.MaxBy = b.Amount(*f.value), f.by
		m.most.Max = m.Max
	}
	if own := v.max.own; own.value != nil {
		if most := min(b.Amount(*own.value), m.most.Max); most < m.Max || !own.lowers {
			m.Max, m.MaxBy = most, own.by
		}
	}
	if f := v.min.forced; f.value != nil {
		m.Min, m.MinBy = b.least(*f.value, m.Max), f.by
		m.most.Min = m.Min
	}
	if own := v.min.own; own.value != nil {
		if least := min(b.least(*own.value, m.Max), m.most.Min); least < m.Min {
			m.Min, m.MinBy = least, own.by
		}
	}
}

// change puts what was set live in force, and the least that makes sense.
func (s *Streams) change(v changed[int]) {
	if f := v.forced; f.value != nil {
		s.Max, s.most, s.By = *f.value, *f.value, f.by
	}
	if own := v.own; own.value != nil {
		if n := min(*own.value, s.most); n < s.Max || !own.lowers {
			s.Max, s.By = n, own.by
		}
	}
	s.Max = max(1, s.Max)
}
