package threads

import (
	"cmp"
	"iter"
	"slices"
)

// Made is what a thread has made and not given back.
type Made struct {
	Thread   uint32
	Contexts int
	Streams  int
	Holds    int // on shared contexts
}

// most is more than any program makes.
const most = 1 << 30

// Count is how many objects they are.
func (m *Made) Count() int { return m.Contexts + m.Streams + m.Holds }

// take takes so many of them away.
func (m *Made) take(n Made) {
	m.Contexts, m.Streams, m.Holds = m.Contexts-n.Contexts, m.Streams-n.Streams, m.Holds-n.Holds
}

// Set is the threads of a program that hold something there. Memory is not counted by thread, as nobody knows who frees
// what: it keeps a thread that has nothing else until the program uses none. The zero Set is empty.
type Set struct {
	all        []*thread // by number
	memoryOnly int       // of them, those that memory alone may keep
	emptied    bool      // some may hold nothing any more
	changed    []*thread // since Changed was called
}

type thread struct {
	Made
	bytes     bool // memory alone may keep it
	inChanged bool // it is one of those that have changed
}

func (s *Set) search(number uint32) (at int, is bool) {
	return slices.BinarySearchFunc(s.all, number, func(t *thread, n uint32) int { return cmp.Compare(t.Thread, n) })
}

// of returns what is remembered of a thread, or nil.
func (s *Set) of(number uint32) *thread {
	if at, is := s.search(number); is {
		return s.all[at]
	}
	return nil
}

func (s *Set) noteChange(t *thread) {
	if !t.inChanged {
		t.inChanged = true
		s.changed = append(s.changed, t)
	}
}

// Len is how many threads are remembered.
func (s *Set) Len() int { return len(s.all) }

// All yields their numbers.
func (s *Set) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, t := range s.all {
			if !yield(t.Thread) {
				return
			}
		}
	}
}

// Has reports whether a thread is remembered.
func (s *Set) Has(number uint32) bool { return s.of(number) != nil }

// Count is how many objects a thread has; bytes, whether memory alone may keep it.
func (s *Set) Count(number uint32) (objects int, bytes bool) {
	if t := s.of(number); t != nil {
		return t.Count(), t.bytes
	}
	return 0, false
}

// Add remembers a thread that is not remembered yet.
func (s *Set) Add(number uint32) {
	at, _ := s.search(number)
	s.all = slices.Insert(s.all, at, &thread{Made: Made{Thread: number}})
}

// Make counts what a thread that is remembered has made.
func (s *Set) Make(m Made) {
	if t := s.of(m.Thread); t != nil {
		t.Contexts = min(t.Contexts+m.Contexts, most)
		t.Streams = min(t.Streams+m.Streams, most)
		t.Holds = min(t.Holds+m.Holds, most)
		s.noteChange(t)
	}
}

// Restore has a thread that is remembered hold what a record says, which is no change.
func (s *Set) Restore(m Made) {
	if t := s.of(m.Thread); t != nil {
		t.Contexts, t.Streams, t.Holds = max(0, m.Contexts), max(0, m.Streams), max(0, m.Holds)
		s.emptied = s.emptied || t.Count() == 0
	}
}

// MakeBytes notes that a thread that is remembered was given memory: from then on that alone may keep it, where it has nothing else.
func (s *Set) MakeBytes(number uint32) {
	if t := s.of(number); t != nil && !t.bytes && t.Count() == 0 {
		t.bytes = true
		s.memoryOnly++
	}
}

// Unmake takes objects off what a thread made; what it has too few of is taken off others.
func (s *Set) Unmake(m Made) {
	take := func(t *thread) {
		c := Made{Contexts: min(m.Contexts, t.Contexts), Streams: min(m.Streams, t.Streams), Holds: min(m.Holds, t.Holds)}
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

// UnmakeAll takes all objects off all threads.
func (s *Set) UnmakeAll() {
	for _, t := range s.all {
		t.Made = Made{Thread: t.Thread}
		s.emptied = true
		s.noteChange(t)
	}
}

// HasMemoryOnly reports whether memory alone may keep some of the threads.
func (s *Set) HasMemoryOnly() bool { return s.memoryOnly > 0 }

// ForgetMemory notes that the program uses no memory: that keeps none of its threads.
func (s *Set) ForgetMemory() {
	for _, t := range s.all {
		t.bytes = false
	}
	s.memoryOnly, s.emptied = 0, true
}

// Forget forgets the threads that hold nothing any more, and returns which they were.
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

// Changed are those that have come to hold other objects than when it was called last, and what they hold.
func (s *Set) Changed() (all []Made) {
	for _, t := range s.changed {
		t.inChanged = false
		all = append(all, t.Made)
	}
	s.changed = s.changed[:0]
	return all
}
