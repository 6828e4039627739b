package inventory

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Started is a process, as it is known to the kernel.
type Started struct {
	PID        int
	StartTicks uint64
}

const (
	// maxEnviron bounds how much of a process's environment is read.
	maxEnviron = 1 << 20
	// environPasses is how often the processes are gone through where some changed meanwhile.
	environPasses = 4
	environPause  = 2 * time.Millisecond
)

// kernelThread is the flag, in field 9 of /proc/PID/stat, of what is no program.
const kernelThread = 0x00200000

// WithEnviron finds, for each of the variables (NAME=value, with the user whose processes
// are meant), the oldest process that was started with it in its environment. Where the user
// is root, anybody's processes are meant.
//
// A process may have a child and end while the list is gone through, and one that does exec
// shows no environment for a moment: where either was seen, the list is gone through again for
// those that are new or were not read.
func (inv *Inventory) WithEnviron(variables map[string]uint32) map[string]Started {
	oldest, read := map[string]Started{}, map[int]bool{}
	for pass := range environPasses {
		if pass > 0 {
			time.Sleep(environPause)
		}
		settled := inv.lookAtEnvirons(variables, oldest, read)
		if settled || len(oldest) == len(variables) {
			break
		}
	}
	return oldest
}

// lookAtEnvirons goes through all processes once, but for those that were read. False: one of
// them changed meanwhile.
func (inv *Inventory) lookAtEnvirons(variables map[string]uint32, oldest map[string]Started, read map[int]bool) (settled bool) {
	names, err := listNames(inv.root)
	if err != nil {
		return true
	}
	settled = true
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid <= 0 || read[pid] {
			continue
		}
		info, err := os.Lstat(inv.path(pid, ""))
		if err != nil {
			settled = false
			continue
		}
		if of, ok := info.Sys().(*syscall.Stat_t); ok && !isMeant(variables, of.Uid) {
			read[pid] = true
			continue
		}
		text := inv.readSlowly(inv.path(pid, "environ"), maxEnviron)
		if len(text) == 0 {
			read[pid] = inv.hasNoEnviron(pid)
			settled = settled && read[pid]
			continue
		}
		read[pid] = true
		for entry := range bytes.SplitSeq(text, []byte{0}) {
			if _, ok := variables[string(entry)]; ok {
				inv.keepOldest(oldest, string(entry), pid)
			}
		}
	}
	return settled
}

func listNames(folder string) ([]string, error) {
	file, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return file.Readdirnames(-1)
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

func (inv *Inventory) keepOldest(oldest map[string]Started, variable string, pid int) {
	ticks, err := inv.startTicks(pid)
	if err != nil {
		return
	}
	if before, ok := oldest[variable]; !ok || ticks < before.StartTicks {
		oldest[variable] = Started{PID: pid, StartTicks: ticks}
	}
}

// hasNoEnviron says whether a process whose environment reads as empty has none: it is the
// kernel's own, a dead one, or was started with none. Else it is about to become another
// program, or has just gone.
func (inv *Inventory) hasNoEnviron(pid int) bool {
	file, err := os.Open(inv.path(pid, "environ"))
	if errors.Is(err, os.ErrPermission) {
		return true
	}
	if err == nil {
		file.Close()
	}
	stat, err := os.ReadFile(inv.path(pid, "stat"))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, flags = 0, 9 - 3
	if len(fields) <= flags {
		return false
	}
	bits, _ := strconv.ParseUint(fields[flags], 10, 64)
	if bits&kernelThread != 0 || fields[state] == "Z" || fields[state] == "X" {
		return true
	}
	line, err := os.Open(inv.path(pid, "cmdline"))
	if err != nil {
		return false
	}
	defer line.Close()
	n, _ := io.ReadFull(line, make([]byte, 1))
	return n > 0
}
