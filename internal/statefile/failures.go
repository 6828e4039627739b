package statefile

// This file records the daemon's failures: which client's request is being applied, and which requests were applied
// when the daemon panicked. daemon/panics.go writes it, daemon/statefiles.go reads it.
//
// The file is PATH.failures, beside the state file at PATH. It is separate because it is read before the state file
// is opened, and stays if the state file is set aside.

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Failure is a panic after which the daemon restarted itself.
type Failure struct {
	At         int64  // uptime in nanoseconds
	PID        uint32 // PID of the client whose request was applied; 0: none
	Pad        uint32
	StartTicks uint64 // start time of that client, in clock ticks since boot
}

// mostFailures is the number of failures that are remembered.
const mostFailures = 64

// failurePage is the content of the file: its first page.
type failurePage struct {
	Magic    uint64
	Version  uint32
	Size     uint32
	BootID   [16]byte
	Count    uint32 // number of all failures; the last mostFailures are kept
	Applying uint32 // PID of the client whose request is being applied; 0: none
	Start    uint64 // start time of the process in Applying, in clock ticks since boot
	Seen     uint32 // Count at the last call of HasNew: failures after which a daemon has started
	Pad      uint32
	Last     [mostFailures]Failure
}

const failureMagic = 0x4c4941464247 // GBFAIL

// Failures is the mapped file. Add may be called concurrently with all other methods except Close; the daemon's lock
// guards the rest.
type Failures struct {
	mu   sync.Mutex // guards the fields that Add writes
	file *mapping
	page *failurePage
}

// OpenFailures maps the failures beside the state file at path. It empties a file of another boot. It sets a file of
// another format aside, and returns its new name. If the file cannot be opened, the failures are only in memory.
func OpenFailures(path string) (f *Failures, aside string, err error) {
	path += ".failures"
	file, _, err := openFile(path, headerSize, examineFailures(path))
	var strange *unreadable
	if errors.As(err, &strange) {
		if aside, err = setAside(path, strange.kind); err == nil {
			file, _, err = openFile(path, headerSize, examineFailures(path))
		}
	}
	if err != nil {
		if file, err = anonymous(headerSize, err); err != nil {
			return nil, aside, err
		}
	}
	f = &Failures{file: file, page: (*failurePage)(unsafe.Pointer(&file.mem[0]))}
	if f.page.Magic == 0 {
		*f.page = newFailures()
	}
	return f, aside, nil
}

// examineFailures returns a function that checks an opened file of failures, as examine does for the state file.
func examineFailures(path string) func(fd int, st *unix.Stat_t) (fresh bool, err error) {
	return func(fd int, st *unix.Stat_t) (bool, error) {
		if !ownedExclusively(st) {
			return false, &unreadable{kindForeign, fmt.Sprintf("%s: must be a file of ours alone (owner %d, mode 600)", path, os.Geteuid())}
		}
		h, _, err := readHeader[failurePage](fd, path)
		want := newFailures()
		want.BootID, want.Count, want.Applying, want.Start, want.Seen, want.Last = h.BootID, h.Count, h.Applying, h.Start, h.Seen, h.Last
		switch {
		case err != nil:
			return false, err
		case h == (failurePage{}) && (st.Size == 0 || st.Size == headerSize):
			return true, nil
		case h != want || st.Size != headerSize:
			return false, &unreadable{kindDamaged, path + " is no such file of this version"}
		}
		return h.BootID != bootID(), nil
	}
}

func newFailures() failurePage {
	return failurePage{Magic: failureMagic, Version: 1, Size: uint32(unsafe.Sizeof(failurePage{})), BootID: bootID()}
}

// Apply records the client whose request is applied from here on. It first sets the PID to 0 and writes the PID last.
// A daemon that dies in between thus leaves no PID beside the start time of another process.
func (f *Failures) Apply(pid uint32, startTicks uint64) {
	atomic.StoreUint32(&f.page.Applying, 0)
	atomic.StoreUint64(&f.page.Start, startTicks)
	atomic.StoreUint32(&f.page.Applying, pid)
}

// Applied records that no client's request is being applied.
func (f *Failures) Applied() { atomic.StoreUint32(&f.page.Applying, 0) }

// Applying returns the process whose request is being applied; PID 0: there is none.
func (f *Failures) Applying() (pid uint32, startTicks uint64) {
	return atomic.LoadUint32(&f.page.Applying), atomic.LoadUint64(&f.page.Start)
}

// Add records a failure. It writes the count last, so that an incomplete failure does not count.
func (f *Failures) Add(x Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.page.Last[f.page.Count%mostFailures] = x
	atomic.AddUint32(&f.page.Count, 1)
}

// Last returns a copy of the remembered failures.
func (f *Failures) Last() []Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.page.Last[:min(f.page.Count, mostFailures)])
}

// HasNew reports whether there was a failure since its last call, by this daemon or the last one.
func (f *Failures) HasNew() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.page.Seen
	f.page.Seen = f.page.Count
	return seen != f.page.Count
}

// Since returns the number of failures since an uptime.
func (f *Failures) Since(at time.Duration) (n int) {
	for _, x := range f.Last() {
		if x.At >= int64(at) {
			n++
		}
	}
	return n
}

// Close unmaps the file; the content stays.
func (f *Failures) Close() error { return f.file.close() }

// SetAside renames the state file at path, because recovery from it would break the daemon again. It returns the new
// name; "": there is no state file.
func SetAside(path string) (string, error) {
	if !isFile(path) {
		return "", nil
	}
	return setAside(path, kindBroken)
}
