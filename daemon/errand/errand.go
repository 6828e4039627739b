package errand

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file defines hooks, and runs them as child processes of the daemon. systemd.go runs them as transient units instead.

// Hook is a command that runs as the owner of a job.
type Hook struct {
	Name    string   // part of the name of its transient unit; two hooks that run at the same time must have different names
	Args    []string // absolute path of a program, and its arguments
	Env     []string // environment variables besides PATH, which every hook has
	UID     uint32
	GID     uint32
	Timeout time.Duration // longest run; then the hook is killed with the processes that it started
}

// path is the environment variable PATH of every hook.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lastWords is the number of bytes at the end of a hook's output among which the error of a failed hook finds its last line.
const lastWords = 256

// Run runs a hook and waits for its end. With systemd the hook is a transient unit: when the hook ends, systemd ends all processes of
// the unit, also processes that left the hook's session. If the daemon is killed, the unit runs on, and the next daemon ends it by
// EndAll. Without systemd the hook is a child process in its own session. If the daemon is killed, the kernel kills the child, but
// processes that the child has started run on.
func Run(ctx context.Context, h Hook) error {
	if hasSystemd() {
		return runUnit(ctx, h)
	}
	return runChild(ctx, h)
}

// runChild runs a hook as a child process, and waits for its end.
func runChild(ctx context.Context, h Hook) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Args[0], h.Args[1:]...)
	cmd.Dir, cmd.Env = "/", append([]string{path}, h.Env...) // without Stdin the hook reads /dev/null, and cannot ask for a password
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	switch own := os.Geteuid(); {
	case own == 0:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: h.UID, Gid: h.GID, Groups: groupsOf(h.UID)}
	case uint32(own) != h.UID:
		return fmt.Errorf("the daemon is no root and cannot run a command as user %d", h.UID)
	}
	runtime.LockOSThread() // Pdeathsig: the kernel kills the child when this thread ends, so the thread must live as long as the child
	defer runtime.UnlockOSThread()
	late := false
	cmd.Cancel = func() error { // exec calls it when ctx ends before the child
		late = true
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	cmd.WaitDelay = time.Second // do not wait longer for a process that left the session and keeps the output open
	if err := cmd.Start(); err != nil {
		return err
	}
	// The child inherits the daemon's protection from the kernel's out-of-memory killer. A hook must not have it.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
	err := cmd.Wait()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // kill the processes of its session that still run
	switch words := out.String(); {
	case late:
		return fmt.Errorf("%s did not end within %v", h.Args[0], h.Timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%s: %w%s", h.Args[0], err, words)
	}
	return nil
}

// groupsOf returns the groups of a user by the user database; nil: the user is not there.
func groupsOf(uid uint32) (all []uint32) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil
	}
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 32); err == nil {
			all = append(all, uint32(n))
		}
	}
	return all
}

// tail is a writer that keeps the last bytes of a hook's output, lastWords at most.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-lastWords):]
	return len(p), nil
}

// String returns a colon and the last line that was written; "": nothing was written.
func (t *tail) String() string {
	line := bytes.TrimSpace(t.kept)
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	if len(line) == 0 {
		return ""
	}
	return ": " + strings.ToValidUTF8(string(line), "?")
}
