package procfacts

// This file collects the facts about one process that rules, tables and messages use. root.go reads the files,
// parse.go parses them, names.go finds the names of users. The daemon calls it for each new client.

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

// Facts are the kernel's facts about a process.
type Facts struct {
	StartTicks uint64 // start time in clock ticks since boot; with the PID it identifies the process
	UID, GID   uint32 // effective
	User       string // name of UID; the number if it has no name
	Groups     []uint32
	GroupNames []string // names of GID and then of Groups, each once; the number if a group has no name
	Exe        string   // path of the program; empty: not readable
	Command    string   // arguments joined by spaces, cut to 4 KiB, not escaped; Comm if there are none
	Comm       string   // the kernel's name of the process
	Cgroup     string   // path in cgroup v2; if v2 is unused, in systemd's v1 hierarchy, or else the longest path in v1
	AlsoIn     []string // paths in the other hierarchies, without their roots
	Unit       string   // innermost .service or .scope in Cgroup, or else in AlsoIn
	NSPID      int      // PID in the process's own PID namespace; 0: unknown
	Container  string   // ID (64 hexadecimal digits) of the innermost container in Cgroup, or else in AlsoIn; empty: none
}

const (
	maxCommand     = 4096
	maxSlowReaders = 64
	slowTimeout    = 100 * time.Millisecond
)

// Reader reads facts and caches the names of users and groups. Its methods are safe for concurrent use.
type Reader struct {
	Root
	names *names
	slow  chan struct{} // one element for each goroutine whose read of /proc may hang

	mu    sync.Mutex
	stuck map[int]int // by PID: number of reads that hang; guarded by mu
}

// NewReader returns a reader of the running machine.
func NewReader() *Reader {
	return &Reader{Root: Here, names: newNames(systemNames, time.Now), slow: make(chan struct{}, maxSlowReaders), stuck: map[int]int{}}
}

// Facts returns the facts about a process, all about one process, or ErrGone. If the process calls execve meanwhile,
// some facts may be from before.
//
// It takes a tenth of a millisecond normally. If the process delays the reading of its memory, or the user database
// delays its answer, it takes little more than 100 ms; Command is then Comm, and names are numbers until the answer
// comes. Facts must not be called with a lock held or in a handler of the filesystem.
func (r *Reader) Facts(pid int) (Facts, error) {
	return r.factsOf(pid, func(dir int, f *Facts) error {
		stat, err := descriptors.stat(dir)
		f.StartTicks = stat.Starttime
		return err
	})
}

// FactsOf returns the facts about a process whose start time is known. lives must report whether that process still
// lives, for example by a pidfd. FactsOf calls lives after reading, so that the facts cannot be about a later process
// with the PID.
func (r *Reader) FactsOf(p Started, lives func() bool) (Facts, error) {
	return r.factsOf(p.PID, func(_ int, f *Facts) error {
		f.StartTicks = p.StartTicks
		if !lives() {
			return ErrGone
		}
		return nil
	})
}

// factsOf reads the facts except the start time. It then calls identify, which adds the start time, with the
// process's open directory.
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

// facts reads into f, with dir as the process's open directory.
func (r *Reader) facts(dir, pid int, f *Facts) (err error) {
	var cgroups []string
	err = r.readThroughLiving(pid, func(thread, exe string) (err error) {
		f.Exe, f.Command = exe, joinArguments(r.readSlowly(pid, filepath.Join(thread, "cmdline"), maxCommand))
		cgroups, err = cgroupsIn(dir, filepath.Join(thread, "cgroup"))
		return err
	})
	if err != nil {
		return err
	}
	f.Cgroup, f.AlsoIn = cgroups[0], cgroups[1:]
	f.Unit, f.Container = firstOf(cgroups, unitOf), firstOf(cgroups, containerOf)
	// The facts read by PID belong to the process of dir: it still had its PID afterwards, because it has a status.
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

// withTimeout runs a read that a process can delay, because the process's own memory is behind the file. After
// slowTimeout it returns os.ErrDeadlineExceeded and leaves the reading goroutine behind, which ends at the latest
// with the process. There may be maxSlowReaders such goroutines. While one of them reads a process, withTimeout
// refuses further reads of that process, which could otherwise use up all of them.
func withTimeout[T any](r *Reader, pid int, read func() (T, error)) (result T, err error) {
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
	answer, ok := receiveWithin(done, slowTimeout)
	if !ok {
		r.addStuck(pid, 1)
		go func() { <-done; r.addStuck(pid, -1) }()
		return result, os.ErrDeadlineExceeded
	}
	return answer()
}

// isStuck reports whether a read of a process hangs.
func (r *Reader) isStuck(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck[pid] > 0
}

// addStuck adds n to the number of reads of a process that hang.
func (r *Reader) addStuck(pid, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stuck[pid] += n; r.stuck[pid] == 0 {
		delete(r.stuck, pid)
	}
}

// readSlowly reads the beginning of a process's file. nil: the file cannot be read, or not in time.
func (r *Reader) readSlowly(pid int, file string, limit int) []byte {
	data, _ := withTimeout(r, pid, func() ([]byte, error) {
		data, _ := readAt(unix.AT_FDCWD, r.path(pid, file), make([]byte, 0, min(limit, 512)), limit)
		return data, nil
	})
	return data
}

// IsMapped reports whether a process has a memfd with this inode and name mapped. If it has not, the process has
// called execve (or unmapped it) and kept its PID. The read takes as long as the process delays it, but at most 100
// ms; the error is then os.ErrDeadlineExceeded.
func (r *Reader) IsMapped(pid int, inode uint64, name string) (bool, error) {
	found, err := withTimeout(r, pid, func() (bool, error) { return r.readMapping(pid, inode, name) })
	if err != nil {
		return false, fmt.Errorf("mappings: %w", ofProcess(pid, err))
	}
	return found, nil
}

// readMapping does the work of IsMapped without a timeout.
func (r *Reader) readMapping(pid int, inode uint64, name string) (found bool, err error) {
	err = r.readThroughLiving(pid, func(thread, _ string) (err error) {
		found, err = findMappingIn(r.path(pid, filepath.Join(thread, "maps")), inode, name)
		return err
	})
	return found, err
}

// findMappingIn searches the mappings in a file.
func findMappingIn(path string, inode uint64, name string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return findMapping(file, inode, strings.ReplaceAll(name, "\n", `\012`))
}

// UserName returns a user's name. It returns the number if the user has no name, or if the user database does not
// answer within namesTimeout.
func (r *Reader) UserName(uid uint32) string { return r.names.user(uid, namesTimeout) }
