package procfacts

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// maxEnviron bounds how much of a process's environment is read.
	maxEnviron = 1 << 20
	// environPasses is how often all processes are gone through where some changed meanwhile,
	// and environPatience for how long those are looked at again that were then in the middle of
	// an exec: on a busy machine one may stay there for that long. Between two passes are pauses
	// that grow from the shortest to the longest.
	environPasses   = 4
	environPatience = 2 * time.Second
	environPause    = 2 * time.Millisecond
	environPauses   = 64 * time.Millisecond
)

// kernelThread is the flag of what is no program (PF_KTHREAD).
const kernelThread = 0x00200000

// WithEnviron finds, for each of the variables (NAME=value, with the user whose processes
// are meant), the oldest process that was started with it in its environment. Where the user
// is root, anybody's processes are meant.
//
// A process may have a child and end while the list is gone through, and one that does exec
// shows no environment for a moment: where either was seen, the list is gone through again for
// those that are new or were not read, a few times; and then those that do exec alone, so that on
// a machine where processes come and go all the time it is soon known that there is none.
func (r *Reader) WithEnviron(variables map[string]uint32) map[string]Started {
	began, pause := time.Now(), environPause
	return r.withEnviron(variables, func() bool {
		time.Sleep(pause)
		pause = min(2*pause, environPauses)
		return time.Since(began) < environPatience
	})
}

// withEnviron rests between two passes; rest says whether there is to be another.
func (r *Reader) withEnviron(variables map[string]uint32, rest func() bool) map[string]Started {
	oldest, read := map[string]Started{}, map[int]bool{}
	var inExec []int
	for pass := 1; ; pass++ {
		pids := inExec
		if pass <= environPasses {
			pids, _ = r.PIDs()
		}
		var gone bool
		inExec, gone = r.lookAtEnvirons(pids, variables, oldest, read)
		settled := len(inExec) == 0 && (!gone || pass >= environPasses)
		if settled || len(oldest) == len(variables) || !rest() {
			return oldest
		}
	}
}

// lookAtEnvirons goes through processes once, but for those that were read. inExec are those
// that are in the middle of an exec; gone: one has ended, and may have had a child.
func (r *Reader) lookAtEnvirons(pids []int, variables map[string]uint32, oldest map[string]Started, read map[int]bool) (inExec []int, gone bool) {
	for _, pid := range pids {
		if read[pid] {
			continue
		}
		info, err := os.Lstat(r.path(pid, ""))
		if err != nil {
			gone = true
			continue
		}
		if of, ok := info.Sys().(*syscall.Stat_t); ok && !isMeant(variables, of.Uid) {
			read[pid] = true
			continue
		}
		text := r.readSlowly(pid, filepath.Join(r.LivingThread(pid), "environ"), maxEnviron)
		if len(text) == 0 {
			switch none, err := r.hasNoEnviron(pid); {
			case err != nil:
				gone = true
			case none:
				read[pid] = true
			default:
				inExec = append(inExec, pid)
			}
			continue
		}
		read[pid] = true
		for entry := range bytes.SplitSeq(text, []byte{0}) {
			if _, ok := variables[string(entry)]; ok {
				r.keepOldest(oldest, string(entry), pid)
			}
		}
	}
	return inExec, gone
}

// isMeant says whether a process with this owner may be one that is looked for. The kernel
// says root where the owner may not look into it.
func isMeant(variables map[string]uint32, owner uint32) bool {
	if owner == 0 {
		return true
	}
	for _, uid := range variables {
		if uid == 0 || uid == owner {
			return true
		}
	}
	return false
}

func (r *Reader) keepOldest(oldest map[string]Started, variable string, pid int) {
	ticks, err := r.StartTicks(pid)
	if err != nil {
		return
	}
	if before, ok := oldest[variable]; !ok || ticks < before.StartTicks {
		oldest[variable] = Started{PID: pid, StartTicks: ticks}
	}
}

// hasNoEnviron says whether a process whose environment reads as empty, or cannot be read in time, has none: it is the
// kernel's own, a dead one, or was started with none. Else it is about to become another program, or holds its own
// address space, which is waited for no longer than anywhere else; an error: it has just gone.
func (r *Reader) hasNoEnviron(pid int) (bool, error) {
	none, err := within(r, pid, func() (bool, error) { return r.readsNoEnviron(pid) })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return none, err
}

func (r *Reader) readsNoEnviron(pid int) (none bool, err error) {
	file, err := os.Open(r.path(pid, "environ"))
	if errors.Is(err, os.ErrPermission) {
		return true, nil
	}
	if err == nil {
		file.Close()
	}
	stat, err := r.stat(pid)
	if err != nil {
		return false, err
	}
	if stat.Flags&kernelThread != 0 {
		return true, nil
	}
	if stat.State == "Z" || stat.State == "X" {
		_, _, err := r.living(pid)
		return hasEnded(err), nil
	}
	if shows, err := r.showsText(pid, "cmdline"); err != nil || !shows {
		return false, err
	}
	shows, err := r.showsText(pid, "environ") // the exec may have ended since it read as empty
	return !shows, err
}

// showsText reports whether a file of a process is not empty.
func (r *Reader) showsText(pid int, name string) (bool, error) {
	file, err := os.Open(r.path(pid, name))
	if err != nil {
		return false, err
	}
	defer file.Close()
	n, _ := io.ReadFull(file, make([]byte, 1))
	return n > 0, nil
}
