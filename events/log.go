package events

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// Log keeps lines in bounded memory. When that is full, the oldest line of the owner with the most bytes is dropped,
// so that no owner's lines displace those of others. Offsets of dropped lines are never reused: they are gaps. The
// daemon has one. Its methods are safe for concurrent use; none of them waits for a reader.
type Log struct {
	room int

	mu    sync.Mutex
	lines []line // in the order of their offsets; dropped ones may still be listed
	gone  int    // how many of them
	held  map[Owner]*share
	used  int   // bytes of the lines that are there
	size  int64 // the offset behind the last line
	last  time.Time
	grown chan struct{} // closed with the next line; nil: nobody waits for one
}

// Owner is whose request a line is about: a user's number, or Daemon.
type Owner int64

// Daemon owns the lines that no user caused.
const Daemon Owner = -1

// line is one line, at its offset. Without text it was dropped.
type line struct {
	at   int64
	text []byte
}

// share is what the log keeps of one owner.
type share struct {
	bytes int
	at    []int64 // the offsets of its lines, the oldest first
}

// NewLog is an empty log for so many bytes of lines.
func NewLog(room int) *Log { return &Log{room: room, held: map[Owner]*share{}} }

// Add appends a line, which ends in its newline and is not changed afterwards.
func (l *Log) Add(now time.Time, owner Owner, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{l.size, text})
	s := l.held[owner]
	if s == nil {
		s = &share{}
		l.held[owner] = s
	}
	s.at = append(s.at, l.size)
	s.bytes += len(text)
	l.used += len(text)
	l.size += int64(len(text))
	l.last = now
	for l.used > l.room && l.used > len(text) {
		l.dropOne()
	}
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// dropOne drops the oldest line of the owner that has the most.
func (l *Log) dropOne() {
	var whose Owner
	most := -1
	for owner, s := range l.held {
		if s.bytes > most {
			whose, most = owner, s.bytes
		}
	}
	s := l.held[whose]
	i := l.search(s.at[0])
	s.at = s.at[1:]
	n := len(l.lines[i].text)
	s.bytes -= n
	l.used -= n
	if l.lines[i].text = nil; len(s.at) == 0 {
		delete(l.held, whose)
	}
	if l.gone++; l.gone > len(l.lines)/2 {
		l.lines = slices.DeleteFunc(l.lines, func(x line) bool { return x.text == nil })
		l.gone = 0
	}
}

// Clear drops all lines. Their offsets are a gap.
func (l *Log) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.gone, l.used = nil, 0, 0
	clear(l.held)
}

// search is the index of the line at an offset, or that has it inside; where none is there, of the next one listed.
func (l *Log) search(offset int64) int {
	i := sort.Search(len(l.lines), func(i int) bool { return l.lines[i].at > offset })
	if i > 0 {
		if x := l.lines[i-1]; x.at == offset || offset < x.at+int64(len(x.text)) {
			return i - 1
		}
	}
	return i
}

// Size is the offset behind the last line, and when that was written; zero: none was.
func (l *Log) Size() (size int64, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.last
}

// ReadAt copies what is there from an offset on, up to the first gap. Where nothing is there at the offset itself, n is
// 0 and next is where something is again: the end, where that is all.
func (l *Log) ReadAt(dst []byte, offset int64) (n int, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset >= l.size {
		return 0, l.size
	}
	for i := l.search(offset); i < len(l.lines) && n < len(dst); i++ {
		x := l.lines[i]
		at := offset + int64(n)
		if x.text == nil {
			continue
		}
		if x.at > at {
			if n == 0 {
				return 0, x.at
			}
			break
		}
		n += copy(dst[n:], x.text[at-x.at:])
	}
	if n == 0 {
		return 0, l.size
	}
	return n, offset + int64(n)
}

// Lines appends whole lines to dst from an offset on, as far as they fit into its capacity, which is MaxLine at least,
// and there is no gap. It returns the offset behind them. Where the first of them is gone, a line that says so comes instead.
func (l *Log) Lines(dst []byte, now time.Time, from int64) (text []byte, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next = min(max(from, 0), l.size)
	began := len(dst)
	for i := sort.Search(len(l.lines), func(i int) bool { return l.lines[i].at >= next }); i < len(l.lines); i++ {
		x := l.lines[i]
		switch {
		case x.text == nil:
			continue
		case x.at > next && len(dst) == began:
			return append(dst, LostLine(now, x.at-next)...), x.at
		case x.at > next, len(dst)+len(x.text) > cap(dst):
			return dst, next
		}
		dst, next = append(dst, x.text...), x.at+int64(len(x.text))
	}
	if next < l.size && len(dst) == began {
		return append(dst, LostLine(now, l.size-next)...), l.size
	}
	return dst, next
}

// Grown is closed when there is something behind an offset.
func (l *Log) Grown(from int64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > from {
		done := make(chan struct{})
		close(done)
		return done
	}
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}
