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
// and no thread: it is made for ten thousand of them. Each has a key, by which its owner knows it. Its methods are safe for
// concurrent use.
type Reaper[K comparable] struct {
	onExit func(key K)
	epoll  *os.File
	raw    syscall.RawConn
	ended  chan struct{}

	turn sync.Mutex // held from taking events to the end of onExit for them; taken before mu

	mu    sync.Mutex // never held while onExit runs
	next  uint64     // the last token
	byKey map[K]uint64
	alive map[uint64]reaped[K] // by token: keys may come again, tokens never do
}

type reaped[K comparable] struct {
	pidfd int
	key   K
}

// NewReaper starts a reaper. It calls onExit from one goroutine, once for each key
// whose process has ended; onExit should be quick, and may call Add and Remove but
// not Close.
func NewReaper[K comparable](onExit func(key K)) (*Reaper[K], error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("reaper: epoll: %w", err)
	}
	// Nonblocking, so that the runtime's own poller waits for it: no thread is tied up.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("reaper: epoll: %w", err)
	}
	r := &Reaper[K]{
		onExit: onExit,
		epoll:  os.NewFile(uintptr(fd), "pidfds"),
		ended:  make(chan struct{}),
		byKey:  make(map[K]uint64),
		alive:  make(map[uint64]reaped[K]),
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
func (r *Reaper[K]) Add(pidfd int, key K) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alive == nil {
		return errors.New("the reaper is closed")
	}
	if _, ok := r.byKey[key]; ok {
		return fmt.Errorf("reaper: key %v is already watched", key)
	}
	r.next++
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(uint32(r.next)), Pad: int32(r.next >> 32)}
	if err := r.control(unix.EPOLL_CTL_ADD, pidfd, &event); err != nil {
		return fmt.Errorf("reaper: key %v: %w", key, err)
	}
	r.alive[r.next] = reaped[K]{pidfd: pidfd, key: key}
	r.byKey[key] = r.next
	return nil
}

// Remove stops watching key. onExit for it may be running, and is not called afterwards.
func (r *Reaper[K]) Remove(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token, ok := r.byKey[key]; ok {
		r.dropLocked(token)
	}
}

// dropLocked forgets a process and takes its pidfd out of the set.
func (r *Reaper[K]) dropLocked(token uint64) {
	p := r.alive[token]
	delete(r.alive, token)
	delete(r.byKey, p.key)
	// It fails only if the caller closed the descriptor before its time.
	_ = r.control(unix.EPOLL_CTL_DEL, p.pidfd, nil)
}

// Close stops the reaper; onExit is not called afterwards. It closes no pidfd.
func (r *Reaper[K]) Close() error {
	r.mu.Lock()
	r.alive, r.byKey = nil, nil
	r.mu.Unlock()
	err := r.epoll.Close()
	<-r.ended
	return err
}

func (r *Reaper[K]) control(op, fd int, event *unix.EpollEvent) (err error) {
	if e := r.raw.Control(func(epfd uintptr) { err = unix.EpollCtl(int(epfd), op, fd, event) }); e != nil {
		return e
	}
	return err
}

func (r *Reaper[K]) run() {
	defer close(r.ended)
	for {
		if err := r.raw.Read(r.reap); err != nil {
			return // closed
		}
	}
}

// Sync returns when onExit has returned for every process that had ended before. It must
// not be called with anything held that onExit takes.
func (r *Reaper[K]) Sync() {
	for more := true; more; {
		if r.raw.Control(func(epfd uintptr) { more = r.reap(epfd) }) != nil {
			return // closed
		}
	}
}

// reap handles some ends; false: there were none.
func (r *Reaper[K]) reap(epfd uintptr) bool {
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

func (r *Reaper[K]) exited(token uint64) {
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
