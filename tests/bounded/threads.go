package bounded

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// This file describes what the threads of a process group wait for. command.go prints that when a program exceeds its limit.

// Threads describes what each thread of a process group waits
// for, as far as the kernel shows it.
func Threads(group int) string {
	var text strings.Builder
	for _, pid := range members(group) {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		fmt.Fprintf(&text, "process %d: %s\n", pid, strings.ReplaceAll(read(proc, "cmdline"), "\x00", " "))
		tasks, _ := filepath.Glob(filepath.Join(proc, "task", "*")) // the pattern is good
		for _, task := range tasks {
			fmt.Fprintf(&text, "  thread %s (%s) in %s, system call %s\n", filepath.Base(task),
				read(task, "comm"), read(task, "wchan"), read(task, "syscall"))
			if stack := read(task, "stack"); stack != "" {
				fmt.Fprintf(&text, "    %s\n", strings.ReplaceAll(stack, "\n", "\n    "))
			}
		}
	}
	return text.String()
}

// members returns the processes of a group, and the process with the group's number even if it leads no group.
func members(group int) []int {
	pids := []int{group}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, path := range stats {
		text := read(path)
		// Skip the name in parentheses, which may contain any text: state, parent, group follow.
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && pid != group && len(fields) > 2 && fields[2] == strconv.Itoa(group) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// read returns the text of a small file, or "" if the file is gone or not readable.
func read(path ...string) string {
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
