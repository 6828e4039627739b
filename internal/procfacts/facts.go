package procfacts

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Facts is what the kernel says about a process.
type Facts struct {
	StartTicks uint64 // clock ticks since boot: with the PID, its identity
	UID, GID   uint32 // effective
	User       string // the number, where it has no name
	Groups     []uint32
	GroupNames []string // of GID and then Groups, each once; the number, where it has no name
	Exe        string   // empty where it may not be read
	Command    string   // the arguments joined by spaces, cut at 4 KiB, not escaped; Comm where there are none
	Comm       string
	Cgroup     string   // path in cgroup v2; where v2 is unused, in systemd's v1 hierarchy, else the longest of v1
	AlsoIn     []string // its other paths, of other hierarchies; the roots left out
	Unit       string   // the innermost .service or .scope of Cgroup, else of AlsoIn
	NSPID      int      // its PID in its own, innermost PID namespace; 0 where the kernel does not say
	Container  string   // the 64 digits of the innermost container of Cgroup, else of AlsoIn
}

const (
	maxCommand     = 4096
	maxSlowReaders = 64
	slowTimeout    = 100 * time.Millisecond
)

// Reader reads facts, and remembers what users and groups are called. Its methods are safe for
// concurrent use.
type Reader struct {
	Root
	names *names
	slow  chan struct{} // one token per reader of /proc that may be stuck

	mu    sync.Mutex
	stuck map[int]int // by process: how many readers of it are
}

// NewReader makes a reader of the running machine.
func NewReader() *Reader {
	return &Reader{Root: Here, names: newNames(systemNames, time.Now), slow: make(chan struct{}, maxSlowReaders), stuck: map[int]int{}}
}

// Facts reads what there is to know about a process: one process from beginning
// to end, or ErrGone. Of one that does exec meanwhile, parts may be from before.
//
// It takes a tenth of a millisecond, and a little over 100 ms at most where the
// process keeps its own memory or the user database keeps its answer: Command is
// then Comm, and names are numbers until the answer is there. It must not be
// called with a lock held, or from a handler of the filesystem.
func (r *Reader) Facts(pid int) (Facts, error) {
	return r.factsOf(pid, func(dir int, f *Facts) error {
		stat, err := descriptors.stat(dir)
		f.StartTicks = stat.Starttime
		return err
	})
}

// FactsOf is Facts of a process of which it is known when it began. The caller can tell that it has not ended,
// as by a pidfd; then what was read is of no other that has its number.
func (r *Reader) FactsOf(p Started, lives func() bool) (Facts, error) {
	return r.factsOf(p.PID, func(_ int, f *Facts) error {
		f.StartTicks = p.StartTicks
		if !lives() {
			return ErrGone
		}
		return nil
	})
}

// factsOf reads what there is to know of a process but when it began, which identify adds when all else has been
// read from the process's directory.
func (r *Reader) factsOf(pid int, identify func(dir int, f *Facts) error) (f Facts, err error) {
	dir, err := r.open(pid)
	if err != nil {
		return f, ofProcess(pid, err)
	}
	defer unix.Close(dir)
	if err = r.facts(dir, pid, &f); err == nil {
		err = identify(dir, &f)
	}
	if err != nil {
		return Facts{}, ofProcess(pid, err)
	}
	return f, nil
}

func (r *Reader) facts(dir, pid int, f *Facts) (err error) {
	var cgroups []string
	err = r.throughLiving(pid, func(thread, exe string) (err error) {
		f.Exe, f.Command = exe, joinArguments(r.readSlowly(pid, filepath.Join(thread, "cmdline"), maxCommand))
		cgroups, err = cgroupsIn(dir, filepath.Join(thread, "cgroup"))
		return err
	})
	if err != nil {
		return err
	}
	f.Cgroup, f.AlsoIn = cgroups[0], cgroups[1:]
	f.Unit, f.Container = firstOf(cgroups, unitOf), firstOf(cgroups, containerOf)
	// What was found by the number is of the process whose directory was opened before: it has its
	// number still, since it has a status.
	st, err := statusIn(dir, "status")
	if err != nil {
		return err
	}
	if st.tgid != pid {
		return fmt.Errorf("it is a thread of process %d: %w", st.tgid, ErrGone)
	}
	f.UID, f.GID, f.Groups, f.Comm, f.NSPID = st.uid, st.gid, st.groups, st.name, st.nspid
	f.Command = cmp.Or(f.Command, f.Comm)
	f.User = r.names.user(f.UID, namesPatience)
	f.GroupNames = r.names.groups(f.GID, f.Groups, namesPatience)
	return nil
}

// within does what a process can hold up (its own memory is behind it), and gives up where that
// takes too long, with os.ErrDeadlineExceeded. Who is stuck is left behind, up to a number, and ends with the process. As long as
// one is, that process is not asked again: it would have all of them.
func within[T any](r *Reader, pid int, read func() (T, error)) (result T, err error) {
	if r.isStuck(pid) {
		return result, os.ErrDeadlineExceeded
	}
	select {
	case r.slow <- struct{}{}:
	default:
		return result, os.ErrDeadlineExceeded
	}
	done := make(chan func() (T, error), 1)
	go func() {
		defer func() { <-r.slow }()
		result, err := read()
		done <- func() (T, error) { return result, err }
	}()
	answer, ok := receive(done, slowTimeout)
	if !ok {
		r.addStuck(pid, 1)
		go func() { <-done; r.addStuck(pid, -1) }()
		return result, os.ErrDeadlineExceeded
	}
	return answer()
}

func (r *Reader) isStuck(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck[pid] > 0
}

func (r *Reader) addStuck(pid, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stuck[pid] += n; r.stuck[pid] == 0 {
		delete(r.stuck, pid)
	}
}

// readSlowly reads the beginning of a process's file; nil: it cannot be read, or takes too long.
func (r *Reader) readSlowly(pid int, file string, limit int) []byte {
	data, _ := within(r, pid, func() ([]byte, error) {
		data, _ := readAt(unix.AT_FDCWD, r.path(pid, file), make([]byte, 0, min(limit, 512)), limit)
		return data, nil
	})
	return data
}

// IsMapped says whether a process has a memfd of that inode and name mapped. Where
// it has not, the process did exec (or unmapped it), though its PID lives on.
// It may take as long as the process holds its own address space, and 100 ms at
// most: it then returns an error that is os.ErrDeadlineExceeded.
func (r *Reader) IsMapped(pid int, inode uint64, name string) (bool, error) {
	found, err := within(r, pid, func() (bool, error) { return r.readMapping(pid, inode, name) })
	if err != nil {
		return false, fmt.Errorf("mappings: %w", ofProcess(pid, err))
	}
	return found, nil
}

func (r *Reader) readMapping(pid int, inode uint64, name string) (found bool, err error) {
	err = r.throughLiving(pid, func(thread, _ string) (err error) {
		found, err = findMappingIn(r.path(pid, filepath.Join(thread, "maps")), inode, name)
		return err
	})
	return found, err
}

func findMappingIn(path string, inode uint64, name string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return findMapping(file, inode, strings.ReplaceAll(name, "\n", `\012`))
}

// UserName is a user's name, or the number where there is none, or the user database does not
// answer at once.
func (r *Reader) UserName(uid uint32) string { return r.names.user(uid, namesTimeout) }
