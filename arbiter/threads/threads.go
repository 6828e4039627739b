package threads

import (
	"cmp"
	"iter"
	"slices"
)

// This file has the set of threads with objects. slots.go and objects.go of package arbiter call it.

// Objects counts the objects that a thread has made and not given back.
type Objects struct {
	Thread   uint32
	Contexts int
	Streams  int
	Holds    int // holds on shared contexts
}

// most is more objects than any program makes.
const most = 1 << 30

// Count returns the number of objects.
func (m *Objects) Count() int { return m.Contexts + m.Streams + m.Holds }

// take subtracts the objects of n.
func (m *Objects) take(n Objects) {
	m.Contexts, m.Streams, m.Holds = m.Contexts-n.Contexts, m.Streams-n.Streams, m.Holds-n.Holds
}

// Set is the threads of a program that hold something on a device. Memory is not counted by thread, because the thread that frees it may be
// another one. A thread with no object stays in the Set because of memory until the program uses none. The zero Set is empty.
type Set struct {
	all        []*thread // by number
	memoryOnly int       // number of threads that only memory may keep
	emptied    bool      // a thread may hold nothing any more
	changed    []*thread // threads whose objects have changed since the last call of Changed
}

// thread has the objects of one thread of a Set.
type thread struct {
	Objects
	bytes     bool // only memory may keep the thread
	inChanged bool // the thread is in Set.changed
}

// search returns the index of a thread in s.all, or where it would be.
func (s *Set) search(number uint32) (at int, is bool) {
	return slices.BinarySearchFunc(s.all, number, func(t *thread, n uint32) int { return cmp.Compare(t.Thread, n) })
}

// of returns a thread of the set, or nil.
func (s *Set) of(number uint32) *thread {
	if at, is := s.search(number); is {
		return s.all[at]
	}
	return nil
}

// noteChange adds a thread to those that Changed returns.
func (s *Set) noteChange(t *thread) {
	if !t.inChanged {
		t.inChanged = true
		s.changed = append(s.changed, t)
	}
}

// Len returns the number of threads.
func (s *Set) Len() int { return len(s.all) }

// All yields the numbers of the threads.
func (s *Set) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, t := range s.all {
			if !yield(t.Thread) {
				return
			}
		}
	}
}

// Has reports whether a thread is in the set.
func (s *Set) Has(number uint32) bool { return s.of(number) != nil }

// Count returns the number of a thread's objects, and whether only memory may keep the thread.
func (s *Set) Count(number uint32) (objects int, bytes bool) {
	if t := s.of(number); t != nil {
		return t.Count(), t.bytes
	}
	return 0, false
}

// Add adds a thread that is not in the set.
func (s *Set) Add(number uint32) {
	at, _ := s.search(number)
	s.all = slices.Insert(s.all, at, &thread{Objects: Objects{Thread: number}})
}

// Make adds objects to a thread of the set.
func (s *Set) Make(m Objects) {
	if t := s.of(m.Thread); t != nil {
		t.Contexts = min(t.Contexts+m.Contexts, most)
		t.Streams = min(t.Streams+m.Streams, most)
		t.Holds = min(t.Holds+m.Holds, most)
		s.noteChange(t)
	}
}

// Restore sets the objects of a thread of the set from a record. Changed does not return them.
func (s *Set) Restore(m Objects) {
	if t := s.of(m.Thread); t != nil {
		t.Contexts, t.Streams, t.Holds = max(0, m.Contexts), max(0, m.Streams), max(0, m.Holds)
		s.emptied = s.emptied || t.Count() == 0
	}
}

// MakeBytes records that a thread of the set was granted memory. If the thread has no object, the memory keeps it from now on.
func (s *Set) MakeBytes(number uint32) {
	if t := s.of(number); t != nil && !t.bytes && t.Count() == 0 {
		t.bytes = true
		s.memoryOnly++
	}
}

// Unmake removes objects of a thread. Objects that the thread does not have are removed from other threads.
func (s *Set) Unmake(m Objects) {
	take := func(t *thread) {
		c := Objects{Contexts: min(m.Contexts, t.Contexts), Streams: min(m.Streams, t.Streams), Holds: min(m.Holds, t.Holds)}
		if c.Count() == 0 {
			return
		}
		t.take(c)
		m.take(c)
		s.noteChange(t)
		s.emptied = s.emptied || t.Count() == 0
	}
	if t := s.of(m.Thread); t != nil {
		take(t)
	}
	for i := 0; i < len(s.all) && m.Count() > 0; i++ {
		take(s.all[i])
	}
}

// UnmakeAll removes all objects of all threads.
func (s *Set) UnmakeAll() {
	for _, t := range s.all {
		t.Objects = Objects{Thread: t.Thread}
		s.emptied = true
		s.noteChange(t)
	}
}

// HasMemoryOnly reports whether only memory may keep some of the threads.
func (s *Set) HasMemoryOnly() bool { return s.memoryOnly > 0 }

// ForgetMemory records that the program uses no memory, so that memory keeps no thread.
func (s *Set) ForgetMemory() {
	for _, t := range s.all {
		t.bytes = false
	}
	s.memoryOnly, s.emptied = 0, true
}

// Forget removes the threads that hold nothing, and returns their numbers.
func (s *Set) Forget() (gone []uint32) {
	if !s.emptied {
		return nil
	}
	s.emptied = false
	s.all = slices.DeleteFunc(s.all, func(t *thread) bool {
		empty := t.Count() == 0 && !t.bytes
		if empty {
			gone = append(gone, t.Thread)
		}
		return empty
	})
	return gone
}

// Changed returns the threads whose objects have changed since the last call, with their objects.
func (s *Set) Changed() (all []Objects) {
	for _, t := range s.changed {
		t.inChanged = false
		all = append(all, t.Objects)
	}
	s.changed = s.changed[:0]
	return all
}
