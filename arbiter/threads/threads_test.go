package threads_test

import (
	"slices"
	"testing"

	"github.com/gpuarb/gpuarb/arbiter/threads"
)

// A set counts which threads of a process have objects or memory, and forgets a thread with the last of them. arbiter/threads_test.go tests
// how many threads a client may have.

// with returns a set of threads that have made the given numbers of streams.
func with(streams ...int) *threads.Set {
	s := &threads.Set{}
	for i, n := range slices.Backward(streams) {
		s.Add(uint32(i + 1))
		s.Make(threads.Objects{Thread: uint32(i + 1), Streams: n})
	}
	s.Changed()
	return s
}

func numbers(s *threads.Set) []uint32 { return slices.Collect(s.All()) }

func TestAThreadIsForgottenWithItsLastObject(t *testing.T) {
	s := with(2, 1)
	s.Unmake(threads.Objects{Thread: 1, Streams: 1})
	if gone := s.Forget(); gone != nil {
		t.Errorf("%v are gone", gone)
	}
	s.Unmake(threads.Objects{Thread: 1, Streams: 1})
	if gone := s.Forget(); !slices.Equal(gone, []uint32{1}) || s.Has(1) || !slices.Equal(numbers(s), []uint32{2}) || s.Len() != 1 {
		t.Errorf("%v are gone, %v are there", gone, numbers(s))
	}
}

func TestMissingObjectsAreRemovedFromOtherThreads(t *testing.T) {
	s := with(1, 5, 5)
	s.Make(threads.Objects{Thread: 2, Contexts: 3, Holds: 2})
	s.Unmake(threads.Objects{Thread: 1, Streams: 4})
	for number, want := range map[uint32]int{1: 0, 2: 2 + 3 + 2, 3: 5} {
		if n, _ := s.Count(number); n != want {
			t.Errorf("thread %d has %d, want %d", number, n, want)
		}
	}
	s.Unmake(threads.Objects{Thread: 9, Contexts: 2}) // an unknown thread
	s.Unmake(threads.Objects{Thread: 9, Holds: 5})
	if n, _ := s.Count(2); n != 2+1 {
		t.Errorf("thread 2 has %d", n)
	}
}

func TestMemoryKeepsAThreadUntilNoneIsUsed(t *testing.T) {
	s := with(0, 1)
	s.MakeBytes(1)
	s.MakeBytes(2) // changes nothing, because the thread has a stream, which keeps it in the set
	if _, bytes := s.Count(1); !bytes || !s.HasMemoryOnly() {
		t.Error("memory keeps nobody")
	}
	if _, bytes := s.Count(2); bytes {
		t.Error("memory keeps who has a stream")
	}
	if gone := s.Forget(); gone != nil {
		t.Errorf("%v are gone", gone)
	}
	s.ForgetMemory()
	if gone := s.Forget(); s.HasMemoryOnly() || !slices.Equal(gone, []uint32{1}) {
		t.Errorf("%v are gone", gone)
	}
}

func TestChangesAreToldOnce(t *testing.T) {
	s := with(1, 1)
	s.Make(threads.Objects{Thread: 2, Contexts: 1})
	s.Make(threads.Objects{Thread: 2, Streams: 1})
	if all := s.Changed(); !slices.Equal(all, []threads.Objects{{Thread: 2, Contexts: 1, Streams: 2}}) {
		t.Errorf("%v", all)
	}
	s.Restore(threads.Objects{Thread: 1, Streams: -1})
	if all := s.Changed(); all != nil {
		t.Errorf("%v", all)
	}
	if gone := s.Forget(); !slices.Equal(gone, []uint32{1}) {
		t.Errorf("%v are gone of whom a record says nothing", gone)
	}
	s.UnmakeAll()
	if all, gone := s.Changed(), s.Forget(); !slices.Equal(all, []threads.Objects{{Thread: 2}}) || !slices.Equal(gone, []uint32{2}) {
		t.Errorf("%v, %v are gone", all, gone)
	}
}

func TestUntrackedThreadIsNotCounted(t *testing.T) {
	s := &threads.Set{}
	s.Make(threads.Objects{Thread: 1, Streams: 1})
	s.Restore(threads.Objects{Thread: 1, Streams: 1})
	s.MakeBytes(1)
	if n, bytes := s.Count(1); n != 0 || bytes || s.Has(1) || s.Len() != 0 || s.HasMemoryOnly() || s.Changed() != nil {
		t.Errorf("%d, %v", n, bytes)
	}
}
