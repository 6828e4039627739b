package spawn

// This file passes a program from Go to start.c, which starts it. exec.go and supervise.go of
// cmd/gpuarb call Start and Exec.

// #cgo CFLAGS: -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra
// #include <stdlib.h>
// #include "start.h"
import "C"

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Ignored reports whether this process was started with a signal ignored.
func Ignored(sig syscall.Signal) bool { return has(C.gs_inherited(1), sig) }

// Blocked reports whether this process was started with a signal blocked.
func Blocked(sig syscall.Signal) bool { return has(C.gs_inherited(0), sig) }

// has reports whether set contains sig. Bit n-1 of set stands for signal n, 1 to 64.
func has(set C.uint64_t, sig syscall.Signal) bool {
	return sig >= 1 && sig <= 64 && set&(1<<(sig-1)) != 0
}

// Parent returns the PID that this process's parent had at the start; 0: the parent is outside of
// this PID namespace.
func Parent() int { return int(C.gs_parent()) }

// Program is a program to start.
type Program struct {
	Path    string
	Args    []string // arguments; the first is the name of the program
	Environ []string
	// DeathSignal is sent to the program when the thread that started it ends; 0: none.
	DeathSignal syscall.Signal
}

// Start starts the program in a child process, in the folder, session and process group of this
// process. If LISTEN_PID or WATCHDOG_PID of systemd has the PID of this process, the child gets its
// own PID in that variable.
//
// The kernel sends DeathSignal when the calling thread ends. So the caller must keep its goroutine
// locked to that thread (runtime.LockOSThread) as long as the program runs. The error is the
// syscall.Errno of execve(2) or fork(2).
func (p Program) Start() (*os.Process, error) {
	pid, err := p.call(func(c *C.struct_gs_program) C.int { return C.gs_start(c) })
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

// Exec replaces this process by the program. It returns only if that failed. DeathSignal is sent
// when the thread that started this process ends. The error is a syscall.Errno. It is ESRCH if
// DeathSignal is set and the parent has ended already. After any other error the signals have the
// dispositions that this process was started with, so the caller must end.
func (p Program) Exec() error {
	_, err := p.call(func(c *C.struct_gs_program) C.int { return C.gs_exec(c) })
	return err
}

// ownPIDs are variables of systemd. Their value is the PID of the process that should read them.
var ownPIDs = [...]string{"LISTEN_PID=", "WATCHDOG_PID="}

// call copies the program to C memory, passes it to do, and frees it. do returns a PID or -errno.
func (p Program) call(do func(*C.struct_gs_program) C.int) (int, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, text := range append(append([]string{p.Path}, p.Args...), p.Environ...) {
		if strings.IndexByte(text, 0) >= 0 {
			return 0, syscall.EINVAL
		}
	}
	c := C.struct_gs_program{path: C.CString(p.Path), arguments: vector(p.Args, nil), death_signal: C.int(p.DeathSignal)}
	c.environment = vector(p.Environ, func(entry string, at *C.char) {
		for i, name := range ownPIDs {
			if value, ok := strings.CutPrefix(entry, name); ok && value == strconv.Itoa(os.Getpid()) {
				c.own_pid[i] = (*C.char)(unsafe.Add(unsafe.Pointer(at), len(name)))
			}
		}
	})
	defer func() {
		free(c.arguments, len(p.Args))
		free(c.environment, len(p.Environ))
		C.free(unsafe.Pointer(c.path))
	}()
	result := do(&c)
	if result < 0 {
		return 0, syscall.Errno(-result)
	}
	return int(result), nil
}

// vector copies strings to C memory. Each copy has room for a PID after it, and NULL ends the list.
// If each is not nil, it is called with each string and its copy.
func vector(list []string, each func(text string, at *C.char)) **C.char {
	memory := (**C.char)(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	entries := unsafe.Slice(memory, len(list))
	for i, text := range list {
		entries[i] = (*C.char)(C.CBytes(append([]byte(text), bytes.Repeat([]byte{0}, C.GS_DIGITS+1)...)))
		if each != nil {
			each(text, entries[i])
		}
	}
	return memory
}

// free frees the copies that vector made of a number of strings.
func free(memory **C.char, count int) {
	for _, entry := range unsafe.Slice(memory, count) {
		C.free(unsafe.Pointer(entry))
	}
	C.free(unsafe.Pointer(memory))
}
