package procfacts

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

// Root is where the kernel shows its processes. Each method reads a file or two of the kernel's
// memory; those of which nothing else is said do not block.
type Root string

// Here is the running machine's.
const Here Root = procfs.DefaultMountPoint

// ErrGone says that there is no such process, or no more.
var ErrGone = errors.New("no such process")

// ofProcess adds to an error whose it is, and tells the ways in which /proc says that a process
// or thread has ended.
func ofProcess(pid int, err error) error {
	if hasEnded(err) {
		err = ErrGone
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

func hasEnded(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

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

// descriptors is the folder of this process's open files, used as a Root: a directory that open returned has its descriptor
// for a name there, as each process has its number in /proc.
const descriptors = Root(procfs.DefaultMountPoint + "/self/fd")

// cgroupsIn reads the paths of a process in all hierarchies from its cgroup file, in the order of cgroupsOf.
func cgroupsIn(dir int, name string) ([]string, error) {
	var room [fileRoom]byte
	data, err := readAt(dir, name, room[:0], maxCgroup)
	if err != nil {
		return nil, err
	}
	return cgroupsOf(data), nil
}

// open opens a process's directory. What is read there is of that process, and of no other that has its
// number later: once it has ended there is nothing there.
func (r Root) open(pid int) (dir int, err error) {
	return unix.Open(r.path(pid, ""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func (r Root) status(pid int) (status, error) {
	return statusIn(unix.AT_FDCWD, r.path(pid, "status"))
}

const (
	// fileRoom is more than most of a process's files have.
	fileRoom = 2048
	// maxStatus is room for 65,536 groups of up to eleven characters, and the rest.
	maxStatus = 1 << 20
	// maxCgroup is room for a path of the greatest length in each of the hierarchies.
	maxCgroup = 1 << 17
)

func statusIn(dir int, name string) (status, error) {
	var room [fileRoom]byte
	data, err := readAt(dir, name, room[:0], maxStatus)
	if err != nil {
		return status{}, err
	}
	return parseStatus(data)
}

// readAt reads the beginning of a file into data, or into more room where that is too small, by the calls
// alone: an os.File is made to be waited for, which costs more than these files do. Of such a file the kernel gives
// as much as there is room for, so that less is its end.
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

// ignoringEINTR makes a call again that a signal interrupted.
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

// StartTicks is when a process began, in clock ticks since boot.
func (r Root) StartTicks(pid int) (uint64, error) {
	stat, err := r.stat(pid)
	if err != nil {
		return 0, ofProcess(pid, err)
	}
	return stat.Starttime, nil
}

// Parent is the process that a process is a child of; 0: none that can be seen.
func (r Root) Parent(pid int) (int, error) {
	stat, err := r.stat(pid)
	if err != nil {
		return 0, ofProcess(pid, err)
	}
	return stat.PPID, nil
}

// Descends says whether a process has another one above it.
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

// TaskOwner returns the process that a thread belongs to. It takes no lock that a process can hold.
func (r Root) TaskOwner(tid uint32) (pid int, ok bool) {
	if tid == 0 || tid > 1<<30 {
		return 0, false // 0 is a task of another PID namespace
	}
	st, err := r.status(int(tid))
	return st.tgid, err == nil
}

// Owner is whose a process is: its effective user, and all its groups.
func (r Root) Owner(pid int) (uid uint32, groups []uint32, err error) {
	st, err := r.status(pid)
	if err != nil {
		return 0, nil, ofProcess(pid, err)
	}
	return st.uid, append(st.groups, st.gid), nil
}

// Unit returns the innermost service or scope of systemd's that a process belongs to by its cgroups;
// empty: none.
func (r Root) Unit(pid int) string {
	cgroups, _ := cgroupsIn(unix.AT_FDCWD, r.path(pid, filepath.Join(r.LivingThread(pid), "cgroup")))
	return firstOf(cgroups, unitOf)
}

// Name is what the kernel calls a process.
func (r Root) Name(pid int) (string, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return "", ofProcess(pid, err)
	}
	return proc.Comm()
}

// Executable is the path of a process's program.
func (r Root) Executable(pid int) (string, error) {
	_, exe, err := r.living(pid)
	return exe, err
}

// LivingThread is a path below a process's directory where the kernel shows its memory and descriptors: that of a thread that lives.
func (r Root) LivingThread(pid int) string {
	thread, _, _ := r.living(pid)
	return thread
}

// living finds a thread of a process that lives, as a path below the process's directory, and the path of its program.
// It is the first one or, where that has ended and others go on, another. One that has ended has no memory (exe,
// cmdline, environ, maps) and may be in no cgroup: by it the process would look like one that is another program's or dead.
// Those that are found may all have ended meanwhile, and left others: how many there are the kernel knows.
func (r Root) living(pid int) (thread, exe string, err error) {
	for range someLooks {
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
	// someThreads are looked at for one that lives: of others that have ended, only those are there that just did.
	someThreads = 64
	// someLooks are taken at a process whose threads end as fast as they are looked at.
	someLooks = 64
)

func (r Root) threads(pid int) []string {
	tasks, err := os.Open(r.path(pid, "task"))
	if err != nil {
		return nil
	}
	defer tasks.Close()
	threads, _ := tasks.Readdirnames(someThreads)
	return threads
}

// throughLiving reads what only a thread that lives has, and again where that one may have ended meanwhile.
func (r Root) throughLiving(pid int, read func(thread, exe string) error) error {
	thread, exe, err := r.living(pid)
	for range someLooks {
		if hasEnded(err) {
			return err
		}
		before := thread
		errRead := read(thread, exe)
		if thread, exe, err = r.living(pid); thread == before && !hasEnded(err) {
			return errRead
		}
	}
	return os.ErrDeadlineExceeded
}

// Arguments is a process's command line; none: it is the kernel's own, or a dead one. It may take
// as long as the process holds its own address space.
func (r Root) Arguments(pid int) ([]string, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return proc.CmdLine()
}

// Environ is the environment that a process was started with. It may take as long as Arguments.
func (r Root) Environ(pid int) ([]string, error) {
	proc, err := r.proc(pid)
	if err != nil {
		return nil, ofProcess(pid, err)
	}
	return proc.Environ()
}

// Started is a process, as it is known to the kernel.
type Started struct {
	PID        int
	StartTicks uint64
}
