package inventory

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper waits for the deaths of processes by their pidfds, all in one goroutine
// and no thread: it is made for ten thousand of them. Its methods are safe for
// concurrent use.
type Reaper struct {
	onExit func(key uint64)
	epoll  *os.File
	raw    syscall.RawConn
	ended  chan struct{}

	turn sync.Mutex // held from taking events to the end of onExit for them; taken before mu

	mu    sync.Mutex // never held while onExit runs
	next  uint64     // the last token
	byKey map[uint64]uint64
	alive map[uint64]reaped // by token: keys may come again, tokens never do
}

type reaped struct {
	pidfd int
	key   uint64
}

// ErrReaperClosed is returned by Add after Close.
var ErrReaperClosed = errors.New("the reaper is closed")

// NewReaper starts a reaper. It calls onExit from one goroutine, once for each key
// whose process has ended; onExit should be quick, and may call Add and Remove but
// not Close.
func NewReaper(onExit func(key uint64)) (*Reaper, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("reaper: epoll: %w", err)
	}
	// Nonblocking, so that the runtime's own poller waits for it: no thread is tied up.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("reaper: epoll: %w", err)
	}
	r := &Reaper{
		onExit: onExit,
		epoll:  os.NewFile(uintptr(fd), "pidfds"),
		ended:  make(chan struct{}),
		byKey:  make(map[uint64]uint64),
		alive:  make(map[uint64]reaped),
	}
	if r.raw, err = r.epoll.SyscallConn(); err != nil {
		r.epoll.Close()
		return nil, fmt.Errorf("reaper: epoll: %w", err)
	}
	go r.run()
	return r, nil
}

// Add watches the process of pidfd, and calls onExit with its key when it ends, or soon where it
// already has. The pidfd stays the caller's, who must Remove the key before closing it. A key that is
// being watched is refused.
func (r *Reaper) Add(pidfd int, key uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive == nil {
		return ErrReaperClosed
	}
	if _, ok := r.byKey[key]; ok {
		return fmt.Errorf("reaper: key %d is already watched", key)
	}
	r.next++
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(uint32(r.next)), Pad: int32(r.next >> 32)}
	if err := r.control(unix.EPOLL_CTL_ADD, pidfd, &event); err != nil {
		return fmt.Errorf("reaper: key %d: %w", key, err)
	}
	r.alive[r.next] = reaped{pidfd: pidfd, key: key}
	r.byKey[key] = r.next
	return nil
}

// Remove stops watching key. onExit for it may be running, and is not called afterwards.
func (r *Reaper) Remove(key uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token, ok := r.byKey[key]; ok {
		r.dropLocked(token)
	}
}

// dropLocked forgets a process and takes its pidfd out of the set.
func (r *Reaper) dropLocked(token uint64) {
	p := r.alive[token]
	delete(r.alive, token)
	delete(r.byKey, p.key)
	// It fails only if the caller closed the descriptor before its time.
	_ = r.control(unix.EPOLL_CTL_DEL, p.pidfd, nil)
}

// Close stops the reaper; onExit is not called afterwards. It closes no pidfd.
func (r *Reaper) Close() error {
	r.mu.Lock()
	r.alive, r.byKey = nil, nil
	r.mu.Unlock()
	err := r.epoll.Close()
	<-r.ended
	return err
}

func (r *Reaper) control(op, fd int, event *unix.EpollEvent) (err error) {
	if e := r.raw.Control(func(epfd uintptr) { err = unix.EpollCtl(int(epfd), op, fd, event) }); e != nil {
		return e
	}
	return err
}

func (r *Reaper) run() {
	defer close(r.ended)
	for {
		if err := r.raw.Read(r.reap); err != nil {
			return // closed
		}
	}
}

// Sync returns when onExit has returned for every process that had ended before. It must
// not be called with anything held that onExit takes.
func (r *Reaper) Sync() {
	for more := true; more; {
		if r.raw.Control(func(epfd uintptr) { more = r.reap(epfd) }) != nil {
			return // closed
		}
	}
}

// reap handles some ends; false: there were none.
func (r *Reaper) reap(epfd uintptr) bool {
	r.turn.Lock()
	defer r.turn.Unlock()
	var events [128]unix.EpollEvent
	n, err := unix.EpollWait(int(epfd), events[:], 0)
	if err != nil {
		return false
	}
	for _, e := range events[:n] {
		r.exited(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32)
	}
	return n > 0
}

func (r *Reaper) exited(token uint64) {
	r.mu.Lock()
	p, ok := r.alive[token]
	if ok {
		r.dropLocked(token)
	}
	r.mu.Unlock()
	if ok {
		r.onExit(p.key)
	}
}
