package procfacts

// This file reads files of /proc for one process. facts.go and lineage.go collect them, parse.go parses them, and
// other packages call the exported methods.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Root is a folder in which the kernel shows its processes. Each method reads a few small files from the kernel's
// memory. The methods do not block unless their comment says so.
type Root string

// Here is the folder of the running machine.
const Here Root = procfs.DefaultMountPoint

// ErrGone means that a process does not exist, or does not exist any more.
var ErrGone = errors.New("no such process")

// ofProcess adds the PID to an error, and replaces the errors by which /proc reports an ended process or thread by
// ErrGone.
func ofProcess(pid int, err error) error {
	if hasEnded(err) {
		err = ErrGone
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// hasEnded reports whether an error of /proc means that the process or thread has ended.
func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// path returns the path of a process's file.
func (r Root) path(pid int, file string) string {
	return filepath.Join(string(r), strconv.Itoa(pid), file)
}

func (r Root) proc(pid int) (procfs.Proc, error) {
	all, err := procfs.NewFS(string(r))
	if err != nil {
		return procfs.Proc{}, err
	}
	return all.Proc(pid)
}

func (r Root) stat(pid int) (procfs.ProcStat, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return proc.Stat()
}

// descriptors is the folder of this process's open files, used as a Root: there, the directory that open returned has
// its descriptor's number as its name, as a process has its PID in /proc.
const descriptors = Root(procfs.DefaultMountPoint + "/self/fd")

// cgroupsIn reads a cgroup file and returns its paths in the order of cgroupsOf.
func cgroupsIn(dir int, name string) ([]string, error) {
	var room [fileBuffer]byte
	data, err := readAt(dir, name, room[:0], maxCgroup)
	if err != nil {
		return nil, err
	}
	return cgroupsOf(data), nil
}

// open opens a process's directory. Files that are read through it belong to that process and never to a later one
// with its PID: after the process's end the directory is empty.
func (r Root) open(pid int) (dir int, err error) {
	return unix.Open(r.path(pid, ""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// status reads and parses a process's status.
func (r Root) status(pid int) (status, error) {
	return statusIn(unix.AT_FDCWD, r.path(pid, "status"))
}

const (
	// fileBuffer is a size that suffices for most files of a process.
	fileBuffer = 2048
	// maxStatus suffices for 65,536 groups of up to eleven characters and the other fields.
	maxStatus = 1 << 20
	// maxCgroup suffices for a path of the greatest length in each hierarchy.
	maxCgroup = 1 << 17
)

// statusIn reads and parses a status file, relative to the open directory dir.
func statusIn(dir int, name string) (status, error) {
	var room [fileBuffer]byte
	data, err := readAt(dir, name, room[:0], maxStatus)
	if err != nil {
		return status{}, err
	}
	return parseStatus(data)
}

// readAt reads the beginning of a file into data, which grows if needed. It uses system calls directly, because
// os.File prepares for waiting, which costs more than these files do. The kernel fills the given buffer of such a
// file, so that a short read is its end.
func readAt(dir int, name string, data []byte, limit int) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for len(data) < limit {
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
		room := data[len(data):min(cap(data), limit)]
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, room) })
		if err != nil {
			return data, err
		}
		data = data[:len(data)+n]
		if n < len(room) {
			break
		}
	}
	return data, nil
}

// ignoringEINTR repeats a call that a signal interrupted.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// PIDs lists the processes.
func (r Root) PIDs() ([]int, error) {
	all, err := procfs.NewFS(string(r))
	if err != nil {
		return nil, err
	}
	procs, err := all.AllProcs()
	if err != nil {
		return nil, err
	}
	pids := make([]int, len(procs))
	for i, proc := range procs {
		pids[i] = proc.PID
	}
	return pids, nil
}

// StartTicks returns the start time of a process, in clock ticks since boot.
func (r Root) StartTicks(pid int) (uint64, error) {
	stat, err := r.stat(pid)
	if err != nil {
		return 0, ofProcess(pid, err)
	}
	return stat.Starttime, nil
}

// Parent returns the parent of a process; 0: no visible parent.
func (r Root) Parent(pid int) (int, error) {
	stat, err := r.stat(pid)
	if err != nil {
		return 0, ofProcess(pid, err)
	}
	return stat.PPID, nil
}

// Descends reports whether ancestor is an ancestor of pid.
func (r Root) Descends(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		parent, err := r.Parent(pid)
		if err != nil {
			return false
		}
		if pid = parent; pid == ancestor {
			return true
		}
	}
	return false
}

// TaskOwner returns the process of a thread. It takes no lock that a process can hold.
func (r Root) TaskOwner(tid uint32) (pid int, ok bool) {
	if tid == 0 || tid > 1<<30 {
		return 0, false // 0 stands for a thread in a foreign PID namespace
	}
	st, err := r.status(int(tid))
	return st.tgid, err == nil
}

// Owner returns a process's effective user and all of its groups.
func (r Root) Owner(pid int) (uid uint32, groups []uint32, err error) {
	st, err := r.status(pid)
	if err != nil {
		return 0, nil, ofProcess(pid, err)
	}
	return st.uid, append(st.groups, st.gid), nil
}

// Unit returns the innermost systemd service or scope in a process's cgroups; empty: none.
func (r Root) Unit(pid int) string {
	cgroups, _ := cgroupsIn(unix.AT_FDCWD, r.path(pid, filepath.Join(r.LivingThread(pid), "cgroup")))
	return firstOf(cgroups, unitOf)
}

// Name returns the kernel's name of a process.
func (r Root) Name(pid int) (string, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return "", ofProcess(pid, err)
	}
	return proc.Comm()
}

// Executable returns the path of a process's program.
func (r Root) Executable(pid int) (string, error) {
	_, exe, err := r.livingThread(pid)
	return exe, err
}

// LivingThread returns the path of a living thread, below the process's directory. The kernel shows the process's
// memory and descriptors only there.
func (r Root) LivingThread(pid int) string {
	thread, _, _ := r.livingThread(pid)
	return thread
}

// livingThread finds a living thread of a process, and the path of its program. The thread's path is relative to the
// process's directory.
//
// The result is the first thread, or another one if the first has ended. An ended thread has no memory (exe, cmdline,
// environ, maps) and may be in no cgroup, so that the process would look dead or like another program.
//
// All listed threads may have ended meanwhile and left others; the kernel's number of threads shows that, and
// livingThread then tries again.
func (r Root) livingThread(pid int) (thread, exe string, err error) {
	for range maxTries {
		if exe, err = os.Readlink(r.path(pid, "exe")); !hasEnded(err) {
			return ".", exe, err
		}
		for _, tid := range r.threads(pid) {
			thread := filepath.Join("task", tid)
			if exe, err := os.Readlink(r.path(pid, filepath.Join(thread, "exe"))); !hasEnded(err) {
				return thread, exe, err
			}
		}
		if st, none := r.stat(pid); none != nil || st.NumThreads <= 1 {
			return ".", "", err
		}
	}
	return ".", "", os.ErrDeadlineExceeded
}

const (
	// maxThreads bounds the threads that are tried. Ended threads stay in the list only for a moment, so that this
	// number suffices.
	maxThreads = 64
	// maxTries bounds the attempts with a process whose threads end while they are tried.
	maxTries = 64
)

// threads lists up to maxThreads threads of a process.
func (r Root) threads(pid int) []string {
	tasks, err := os.Open(r.path(pid, "task"))
	if err != nil {
		return nil
	}
	defer tasks.Close()
	threads, _ := tasks.Readdirnames(maxThreads)
	return threads
}

// readThroughLiving calls read with a living thread, for files that only a living thread has. It calls read again if
// that thread may have ended meanwhile.
func (r Root) readThroughLiving(pid int, read func(thread, exe string) error) error {
	thread, exe, err := r.livingThread(pid)
	for range maxTries {
		if hasEnded(err) {
			return err
		}
		before := thread
		errRead := read(thread, exe)
		if thread, exe, err = r.livingThread(pid); thread == before && !hasEnded(err) {
			return errRead
		}
	}
	return os.ErrDeadlineExceeded
}

// Arguments returns a process's command line; none: a kernel thread or a dead process. It blocks as long as the
// process holds its own address space.
func (r Root) Arguments(pid int) ([]string, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return proc.CmdLine()
}

// Environ returns the environment with which a process was started. It blocks as Arguments does.
func (r Root) Environ(pid int) ([]string, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return proc.Environ()
}

// Started identifies a process by its PID and its start time.
type Started struct {
	PID        int
	StartTicks uint64 // clock ticks since boot
}
