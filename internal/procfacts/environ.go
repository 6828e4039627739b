package procfacts

// This file finds processes by a variable in their environment. The daemon uses it to find the processes of jobs
// after its restart. lineage.go reads variables of one known process.

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
	// maxEnviron bounds the bytes that are read of a process's environment.
	maxEnviron = 1 << 20
	// environPasses bounds the passes over all processes if some changed in the meantime. environPatience bounds the
	// further passes over processes in the middle of an exec, where a busy machine may keep a process for that long.
	// The pauses between passes grow from environPause to environMaxPause.
	environPasses   = 4
	environPatience = 2 * time.Second
	environPause    = 2 * time.Millisecond
	environMaxPause = 64 * time.Millisecond
)

// kernelThread is the flag of kernel threads in /proc/PID/stat (PF_KTHREAD).
const kernelThread = 0x00200000

// WithEnviron finds, for each variable (NAME=value), the oldest process that was started with it in its environment.
// Only processes of the variable's user count; for root all processes count.
//
// During a pass, a process may start a child and end, and a process in the middle of an exec shows no environment.
// After such a pass WithEnviron makes another one over processes that are new or were not read, up to environPasses.
// Further passes are only about processes in the middle of an exec, so that the search also ends on a machine where
// processes start and end all the time.
func (r *Reader) WithEnviron(variables map[string]uint32) map[string]Started {
	began, pause := time.Now(), environPause
	return r.withEnviron(variables, func() bool {
		time.Sleep(pause)
		pause = min(2*pause, environMaxPause)
		return time.Since(began) < environPatience
	})
}

// withEnviron does the work of WithEnviron. It calls pause between two passes, which waits and reports whether
// another pass may follow.
func (r *Reader) withEnviron(variables map[string]uint32, pause func() bool) map[string]Started {
	oldest, read := map[string]Started{}, map[int]bool{}
	var inExec []int
	for pass := 1; ; pass++ {
		pids := inExec
		if pass <= environPasses {
			pids, _ = r.PIDs()
		}
		var gone bool
		inExec, gone = r.scanEnvirons(pids, variables, oldest, read)
		done := len(inExec) == 0 && (!gone || pass >= environPasses)
		if done || len(oldest) == len(variables) || !pause() {
			return oldest
		}
	}
}

// scanEnvirons makes one pass over those processes that are not in read. inExec are the processes in the middle of an
// exec. gone is true if a process has ended, which may have left a child.
func (r *Reader) scanEnvirons(pids []int, variables map[string]uint32, oldest map[string]Started, read map[int]bool) (inExec []int, gone bool) {
	for _, pid := range pids {
		if read[pid] {
			continue
		}
		info, err := os.Lstat(r.path(pid, ""))
		if err != nil {
			gone = true
			continue
		}
		if of, ok := info.Sys().(*syscall.Stat_t); ok && !mayMatch(variables, of.Uid) {
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

// mayMatch reports whether a process of this owner may have one of the variables. The kernel shows root as the owner
// of a process whose environment its user may not read.
func mayMatch(variables map[string]uint32, owner uint32) bool {
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

// keepOldest records a process for a variable if it is older than the recorded one.
func (r *Reader) keepOldest(oldest map[string]Started, variable string, pid int) {
	ticks, err := r.StartTicks(pid)
	if err != nil {
		return
	}
	if before, ok := oldest[variable]; !ok || ticks < before.StartTicks {
		oldest[variable] = Started{PID: pid, StartTicks: ticks}
	}
}

// hasNoEnviron explains an environment that reads as empty or cannot be read in time. It returns true for a kernel
// thread, a dead process, and a process that was started without variables. It returns false for a process in the
// middle of an exec, or one that holds its own address space beyond the timeout. An error means that the process has
// just ended.
func (r *Reader) hasNoEnviron(pid int) (bool, error) {
	none, err := withTimeout(r, pid, func() (bool, error) { return r.readsNoEnviron(pid) })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return none, err
}

// readsNoEnviron does the work of hasNoEnviron without a timeout.
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
		_, _, err := r.livingThread(pid)
		return hasEnded(err), nil
	}
	if shows, err := r.showsText(pid, "cmdline"); err != nil || !shows {
		return false, err
	}
	shows, err := r.showsText(pid, "environ") // the exec may have ended since the first read
	return !shows, err
}

// showsText reports whether a file of a process has any text.
func (r *Reader) showsText(pid int, name string) (bool, error) {
	file, err := os.Open(r.path(pid, name))
	if err != nil {
		return false, err
	}
	defer file.Close()
	n, _ := io.ReadFull(file, make([]byte, 1))
	return n > 0, nil
}
