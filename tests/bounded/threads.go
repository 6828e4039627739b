package bounded

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Threads says what each thread of a process and of the others in its group waits
// for, as far as the kernel tells.
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

// members are the processes of a group, its leader included though it lead none.
func members(group int) []int {
	pids := []int{group}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, path := range stats {
		text := read(path)
		// After the name in parentheses, which may hold anything: state, parent, group.
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && pid != group && len(fields) > 2 && fields[2] == strconv.Itoa(group) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// read is a small file's text; none, where it has gone or is not for us to see.
func read(path ...string) string {
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
