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

// This file runs hooks as children, and has what hooks of both kinds share. systemd.go runs them as transient units.

// Hook is a command that runs as the owner of a job.
type Hook struct {
	Name    string // for the name of its transient unit; unique among the hooks that run
	Args    []string
	Env     []string // without PATH, which every hook has
	UID     uint32
	GID     uint32
	Timeout time.Duration // after which the hook and everything that it started is killed
}

// path is the PATH of a hook.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lastWords is how much of a hook's output its error has, in bytes.
const lastWords = 256

// Run runs a hook and waits for its end. With systemd it is a transient unit, so that also processes which left the hook's session end
// with it. EndAll ends the units of a daemon that was killed. Without systemd the hook is a child in a session of its own. The kernel ends
// the child with the daemon, but no processes that the child has started.
func Run(ctx context.Context, h Hook) error {
	if hasSystemd() {
		return runUnit(ctx, h)
	}
	return runChild(ctx, h)
}

// runChild runs a hook as a child.
func runChild(ctx context.Context, h Hook) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.Args[0], h.Args[1:]...)
	cmd.Dir, cmd.Env = "/", append([]string{path}, h.Env...) // no Stdin: the hook reads /dev/null, and has no terminal to ask for a password
	out := &tail{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	switch own := os.Geteuid(); {
	case own == 0:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: h.UID, Gid: h.GID, Groups: groupsOf(h.UID)}
	case uint32(own) != h.UID:
		return fmt.Errorf("the daemon is no root and cannot run a command as user %d", h.UID)
	}
	runtime.LockOSThread() // the kernel kills the child when the thread that started it ends
	defer runtime.UnlockOSThread()
	late := false
	cmd.Cancel = func() error { // not called after the child has ended
		late = true
		return unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	}
	cmd.WaitDelay = time.Second // a process that left the session may have the output open
	if err := cmd.Start(); err != nil {
		return err
	}
	// The daemon is the last process that the kernel kills for lack of memory; a hook is an ordinary one.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
	err := cmd.Wait()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // what it left behind
	switch words := out.String(); {
	case late:
		return fmt.Errorf("%s did not end within %v", h.Args[0], h.Timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%s: %w%s", h.Args[0], err, words)
	}
	return nil
}

// groupsOf returns the groups of a user; nil if they are not known.
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

// tail keeps the last line of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-lastWords):]
	return len(p), nil
}

// String returns the last line behind a colon; "": nothing was written.
func (t *tail) String() string {
	line := bytes.TrimSpace(t.kept)
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	if len(line) == 0 {
		return ""
	}
	return ": " + strings.ToValidUTF8(string(line), "?")
}
