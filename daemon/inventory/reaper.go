package inventory

// This file waits for the deaths of processes. The daemon adds each client's pidfd; package daemon cleans up in
// onExit.

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper waits for the deaths of processes by their pidfds, in one goroutine that blocks no thread, for up to ten
// thousand processes. The caller chooses a key for each process. Its methods are safe for concurrent use.
type Reaper[K comparable] struct {
	onExit func(key K)
	epoll  *os.File
	raw    syscall.RawConn
	ended  chan struct{}

	turn sync.Mutex // held from epoll_wait to the end of onExit for its events; taken before mu

	mu    sync.Mutex // guards the fields below; never held while onExit runs
	next  uint64     // the last token
	byKey map[K]uint64
	alive map[uint64]reaped[K] // by token, which unlike a key is never reused
}

// reaped is one watched process.
type reaped[K comparable] struct {
	pidfd int
	key   K
}

// NewReaper starts a reaper. It calls onExit from one goroutine, once for each key whose process has ended. onExit
// must be quick. It may call Add and Remove but not Close.
func NewReaper[K comparable](onExit func(key K)) (*Reaper[K], error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("reaper: epoll: %w", err)
	}
	// Nonblocking, so that the runtime's poller waits for it without a thread.
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

// Add watches the process of pidfd. When the process ends, or if it has ended already, the reaper calls onExit with
// key. The caller keeps the pidfd, and must Remove the key before closing it. Add returns an error for a key that is
// being watched.
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

// Remove stops watching key. A call of onExit for key may be running; no later call comes.
func (r *Reaper[K]) Remove(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token, ok := r.byKey[key]; ok {
		r.dropLocked(token)
	}
}

// dropLocked forgets a process and removes its pidfd from the epoll set.
func (r *Reaper[K]) dropLocked(token uint64) {
	p := r.alive[token]
	delete(r.alive, token)
	delete(r.byKey, p.key)
	// It fails only if the caller closed the descriptor too early.
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

// control calls epoll_ctl(2).
func (r *Reaper[K]) control(op, fd int, event *unix.EpollEvent) (err error) {
	if e := r.raw.Control(func(epfd uintptr) { err = unix.EpollCtl(int(epfd), op, fd, event) }); e != nil {
		return e
	}
	return err
}

// run handles deaths until Close.
func (r *Reaper[K]) run() {
	defer close(r.ended)
	for {
		if err := r.raw.Read(r.reap); err != nil {
			return // closed
		}
	}
}

// Sync returns after onExit has returned for every process that ended before the call. The caller must hold no lock
// that onExit takes.
func (r *Reaper[K]) Sync() {
	for more := true; more; {
		if r.raw.Control(func(epfd uintptr) { more = r.reap(epfd) }) != nil {
			return // closed
		}
	}
}

// reap handles up to 128 deaths, and reports whether there were any.
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

// exited calls onExit for a token that is still watched.
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
