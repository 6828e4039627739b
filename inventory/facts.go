package inventory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessFacts is what the kernel says about a process.
type ProcessFacts struct {
	StartTicks uint64 // clock ticks since boot: with the PID, its identity
	UID, GID   uint32 // effective
	User       string // the number, where it has no name
	Groups     []uint32
	GroupNames []string // of GID and then Groups, each once; the number, where it has no name
	Exe        string   // empty where it may not be read
	Command    string   // the arguments joined by spaces, cut at 4 KiB, not escaped; Comm where there are none
	Comm       string
	Cgroup     string // path in cgroup v2; where v2 is unused, in systemd's v1 hierarchy, else the longest of v1
	Unit       string // the innermost .service or .scope of Cgroup
	Container  string // the 64 digits of the innermost container of Cgroup
}

// ErrGone says that there is no such process, or no more.
var ErrGone = errors.New("no such process")

const (
	maxCommand     = 4096
	maxSlowReaders = 64
	slowTimeout    = 100 * time.Millisecond
)

// Facts reads what there is to know about a process: one process from beginning
// to end, or ErrGone. Of one that does exec meanwhile, parts may be from before.
//
// It takes a tenth of a millisecond, and a little over 100 ms at most where the
// process keeps its own memory or the user database keeps its answer: Command is
// then Comm, and names are numbers until the answer is there. It must not be
// called with a lock held, or from a handler of the filesystem.
func (inv *Inventory) Facts(pid int) (ProcessFacts, error) {
	f, err := inv.facts(pid)
	if isGone(err) {
		return ProcessFacts{}, fmt.Errorf("process %d: %w", pid, ErrGone)
	}
	if err != nil {
		return ProcessFacts{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return f, nil
}

// isGone tells the ways in which /proc says that a process has ended.
func isGone(err error) bool {
	return errors.Is(err, ErrGone) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

func (inv *Inventory) facts(pid int) (f ProcessFacts, err error) {
	proc, err := inv.proc.Proc(pid)
	if err != nil {
		return f, err
	}
	if f.StartTicks, err = inv.startTicks(pid); err != nil {
		return f, err
	}
	st, err := inv.readStatus(pid)
	if err != nil {
		return f, err
	}
	if st.tgid != pid {
		return f, fmt.Errorf("it is a thread of process %d: %w", st.tgid, ErrGone)
	}
	f.UID, f.GID, f.Groups = st.uid, st.gid, st.groups
	if f.Comm, err = proc.Comm(); err != nil {
		return f, err
	}
	if f.Exe, err = proc.Executable(); err != nil && !errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	groups, err := proc.Cgroups()
	if err != nil {
		return f, err
	}
	f.Cgroup = chooseCgroup(groups)
	f.Unit, f.Container = unitOf(f.Cgroup), containerOf(f.Cgroup)
	if f.Command = joinArguments(inv.readSlowly(inv.path(pid, "cmdline"), maxCommand)); f.Command == "" {
		f.Command = f.Comm
	}
	// The same process from beginning to end, or else all of it is worth nothing.
	switch now, err := inv.startTicks(pid); {
	case err != nil:
		return f, err
	case now != f.StartTicks:
		return f, ErrGone
	}
	f.User = inv.names.user(f.UID)
	f.GroupNames = inv.names.groups(f.GID, f.Groups)
	return f, nil
}

func (inv *Inventory) path(pid int, file string) string {
	return filepath.Join(inv.root, strconv.Itoa(pid), file)
}

// StartTicks is when a process began, in clock ticks since boot. It reads one small file of
// the kernel's memory, and does not block.
func (inv *Inventory) StartTicks(pid int) (uint64, error) {
	ticks, err := inv.startTicks(pid)
	if isGone(err) {
		err = ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	return ticks, nil
}

func (inv *Inventory) startTicks(pid int) (uint64, error) {
	data, err := os.ReadFile(inv.path(pid, "stat"))
	if err != nil {
		return 0, err
	}
	return parseStartTicks(string(data))
}

func (inv *Inventory) readStatus(pid int) (status, error) {
	file, err := os.Open(inv.path(pid, "status"))
	if err != nil {
		return status{}, err
	}
	defer file.Close()
	return parseStatus(file)
}

// readSlowly reads the beginning of a file whose reading a process can hold up (its
// own memory is behind it), and returns nothing where that takes too long. A
// reader that is stuck is left behind, up to a number; it ends with the process.
func (inv *Inventory) readSlowly(path string, limit int64) []byte {
	select {
	case inv.slow <- struct{}{}:
	default:
		return nil
	}
	done := make(chan []byte, 1)
	go func() {
		defer func() { <-inv.slow }()
		file, err := os.Open(path)
		if err != nil {
			done <- nil
			return
		}
		defer file.Close()
		data, _ := io.ReadAll(io.LimitReader(file, limit))
		done <- data
	}()
	timeout := time.NewTimer(slowTimeout)
	defer timeout.Stop()
	select {
	case data := <-done:
		return data
	case <-timeout.C:
		return nil
	}
}

// TaskOwner returns the process that a thread belongs to. It reads one small file
// of the kernel's memory, takes no lock that a process can hold, and does not block.
func (inv *Inventory) TaskOwner(tid uint32) (pid int, ok bool) {
	if tid == 0 || tid > 1<<30 {
		return 0, false // 0 is a task of another PID namespace
	}
	st, err := inv.readStatus(int(tid))
	return st.tgid, err == nil
}

// Descends says whether a process has another one above it. It reads one small file of
// the kernel's memory for each in between.
func (inv *Inventory) Descends(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		st, err := inv.readStatus(pid)
		if err != nil {
			return false
		}
		if pid = st.parent; pid == ancestor {
			return true
		}
	}
	return false
}

// IsMapped says whether a process has a memfd of that inode and name mapped. Where
// it has not, the process did exec (or unmapped it), though its PID lives on.
// It may take as long as the process holds its own address space, and 100 ms at
// most: it then returns an error that is os.ErrDeadlineExceeded.
func (inv *Inventory) IsMapped(pid int, inode uint64, name string) (bool, error) {
	type answer struct {
		found bool
		err   error
	}
	select {
	case inv.slow <- struct{}{}:
	default:
		return false, fmt.Errorf("mappings of process %d: %w", pid, os.ErrDeadlineExceeded)
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-inv.slow }()
		found, err := inv.readMapping(pid, inode, name)
		done <- answer{found, err}
	}()
	timeout := time.NewTimer(slowTimeout)
	defer timeout.Stop()
	select {
	case a := <-done:
		if isGone(a.err) {
			a.err = ErrGone
		}
		if a.err != nil {
			return false, fmt.Errorf("mappings of process %d: %w", pid, a.err)
		}
		return a.found, nil
	case <-timeout.C:
		return false, fmt.Errorf("mappings of process %d: %w", pid, os.ErrDeadlineExceeded)
	}
}

func (inv *Inventory) readMapping(pid int, inode uint64, name string) (bool, error) {
	file, err := os.Open(inv.path(pid, "maps"))
	if err != nil {
		return false, err
	}
	defer file.Close()
	return findMapping(file, inode, strings.ReplaceAll(name, "\n", `\012`))
}
