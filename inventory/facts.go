package inventory

import (
	"context"
	"errors"
)

// ProcessFacts is what the kernel says about a process.
type ProcessFacts struct {
	StartTicks uint64 // clock ticks since boot: with the PID, its identity
	UID, GID   uint32 // effective
	User       string // the number, where it has no name
	Groups     []uint32
	GroupNames []string // of GID and Groups; the number, where it has no name
	Exe        string
	Command    string // the arguments joined by spaces, not escaped; Comm where there are none
	Comm       string
	Cgroup     string // path in cgroup v2, else the one that systemd's v1 hierarchy gives
	Unit       string // the innermost .service or .scope of Cgroup
	Container  string // the 64 digits of a container in Cgroup
}

// Errors of process facts and process events.
var (
	ErrGone        = errors.New("no such process")
	ErrUnavailable = errors.New("process events are not available")
)

// Facts reads what there is to know about a process.
func (inv *Inventory) Facts(pid int) (ProcessFacts, error) { return ProcessFacts{}, ErrGone }

// TaskOwner returns the process that a thread belongs to.
func (inv *Inventory) TaskOwner(tid uint32) (pid int, ok bool) { return 0, false }

// IsMapped says whether a process has a mapping of a memfd, by its inode and name.
func (inv *Inventory) IsMapped(pid int, inode uint64, name string) (bool, error) {
	return false, ErrGone
}

// EventKind says what happened to a process.
type EventKind int

// The kinds of ProcessEvent.
const (
	EventExec EventKind = iota + 1
	EventExit
)

// ProcessEvent is a hint that a process did exec or ended.
type ProcessEvent struct {
	Kind EventKind
	PID  int
}

// Watch calls handler for each exec and exit of a process on the machine, until ctx ends.
func Watch(ctx context.Context, handler func(ProcessEvent)) error { return ErrUnavailable }

// Reaper waits for the deaths of processes by their pidfds.
type Reaper struct{}

// NewReaper starts a reaper.
func NewReaper(onExit func(pid int, key uint64)) (*Reaper, error) { return &Reaper{}, nil }

// Add watches pidfd, which stays the caller's, and calls onExit(pid, key) once when it ends.
func (r *Reaper) Add(pidfd int, pid int, key uint64) error { return nil }

// Remove stops watching key.
func (r *Reaper) Remove(key uint64) {}

// Close stops the reaper.
func (r *Reaper) Close() error { return nil }
