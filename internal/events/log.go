package events

// This file keeps the lines of the history in bounded memory. event.go has their format.

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// Log keeps lines in bounded memory. If it is full, it drops the oldest line of the owner with the
// most bytes. So no owner's lines displace those of others. Offsets of dropped lines are never used
// again; they are gaps. The daemon has one Log. Its methods are safe for concurrent use, and none
// waits for a reader.
type Log struct {
	capacity int

	mu           sync.Mutex
	lines        []line // sorted by offset; dropped lines may still be listed, without text
	droppedCount int    // number of dropped lines that are listed
	held         map[Owner]*share
	used         int   // bytes of the lines that have text
	size         int64 // offset after the last line
	last         time.Time
	grown        chan struct{} // closed when the next line is added; nil: no reader waits
}

// Owner is the user whose request a line is about, or Daemon.
type Owner int64

// Daemon owns the lines that no user caused.
const Daemon Owner = -1

// line is a line and its offset. A dropped line has no text.
type line struct {
	at   int64
	text []byte
}

// share is the part of the log that belongs to one owner.
type share struct {
	bytes int
	at    []int64 // offsets of its lines, oldest first
}

// NewLog returns an empty log for a number of bytes.
func NewLog(capacity int) *Log { return &Log{capacity: capacity, held: map[Owner]*share{}} }

// Add appends a line, which must end with a newline and must not change afterwards.
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
	for l.used > l.capacity && l.used > len(text) {
		l.dropOldest()
	}
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// dropOldest drops the oldest line of the owner with the most bytes.
func (l *Log) dropOldest() {
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
	if l.droppedCount++; l.droppedCount > len(l.lines)/2 {
		l.lines = slices.DeleteFunc(l.lines, func(x line) bool { return x.text == nil })
		l.droppedCount = 0
	}
}

// Clear drops all lines. Their offsets become a gap.
func (l *Log) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.droppedCount, l.used = nil, 0, 0
	clear(l.held)
}

// search returns the index of the line that contains an offset. If no line contains it, search
// returns the index of the next listed line.
func (l *Log) search(offset int64) int {
	i := sort.Search(len(l.lines), func(i int) bool { return l.lines[i].at > offset })
	if i > 0 {
		if x := l.lines[i-1]; x.at == offset || offset < x.at+int64(len(x.text)) {
			return i - 1
		}
	}
	return i
}

// Size returns the offset after the last line, and the time of that line; zero: no line.
func (l *Log) Size() (size int64, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, l.last
}

// ReadAt copies bytes from an offset on, up to the first gap. If the offset is in a gap, n is 0,
// and next is the end of the gap.
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

// Lines appends whole lines to dst from an offset on. It stops at a gap, or when the capacity of
// dst is full, which must be at least MaxLine. It returns the offset after the last appended line.
// If the first line was dropped, a line of the kind Lost is appended instead.
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

// Grown returns a channel that is closed when there are bytes after an offset.
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
