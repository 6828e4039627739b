package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/procfacts"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A claim that a shell asks for has to outlive the command that asked. So that command
// starts a keeper, which opens the job and is its runner for the daemon. The keeper gets
// a request on its stdin, answers on its stdout, and is told on stdin that the answer has
// arrived; if stdin ends before that, nobody wants the claim. It then lets go of all that
// was its starter's, which the end of its stdout tells, and ends with the holder.

const (
	keeperName = "claim-keeper"
	claimName  = "GPUARB_CLAIM" // the keeper's PID, in the holder's environment
)

// keepRequest is what a keeper is asked to do.
type keepRequest struct {
	Path   string // of the daemon's socket
	Holder int    // PID; the claim ends with it
	Job    ipc.JobOpenRequest
}

// keepReply is what came of it.
type keepReply struct {
	Job  ipc.JobOpenReply
	Code int // not 0: it failed
	Text string
}

func (a *app) keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use:    keeperName,
		Short:  "keep a claim; started by gpuarb claim",
		Hidden: true,
		Args:   cobra.ArbitraryArgs, // the holder and the socket, for those who look for a shell's claim
		RunE:   func(*cobra.Command, []string) error { return a.keepClaim(os.Stdin) },
	}
}

// keepClaim is the keeper's life.
func (a *app) keepClaim(stdin io.Reader) error {
	closeInherited()
	caught := make(chan os.Signal, 64)
	signal.Notify(caught, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	from := gob.NewDecoder(stdin)
	var request keepRequest
	if err := from.Decode(&request); err != nil {
		return fail(exitUsage, "%s is started by gpuarb claim: %w", keeperName, err)
	}
	holder, err := unix.PidfdOpen(request.Holder, 0)
	if err != nil {
		return a.answerStarter(keepReply{Code: exitFailed, Text: fmt.Sprintf("process %d, which is to have the claim: %v", request.Holder, err)})
	}
	arrived := make(chan bool, 1)
	go func() {
		var yes bool
		err := from.Decode(&yes)
		if err != nil {
			caught <- unix.SIGTERM // the starter is gone: a wait is given up
		}
		arrived <- err == nil && yes
	}()
	job, err := a.openJob(request.Path, "", request.Job, caught)
	if err != nil {
		return a.answerStarter(failureOf(err))
	}
	if err := a.answerStarter(keepReply{Job: job}); err != nil || !<-arrived {
		return err
	}
	a.keepUntilEnd(request.Path, job.Job, holder, caught)
	return nil
}

// failureOf is an error as the starter is told of it.
func failureOf(err error) keepReply {
	exit := coded(err, exitFailed)
	reply := keepReply{Code: exit.code}
	if exit.err != nil {
		reply.Text = exit.err.Error()
	}
	return reply
}

func (a *app) answerStarter(reply keepReply) error {
	return gob.NewEncoder(os.Stdout).Encode(reply)
}

// keepUntilEnd waits until the holder ends or the claim is released. Processes that the
// holder leaves behind keep the device; a release takes it from them.
func (a *app) keepUntilEnd(path string, job ipc.Token, holder int, caught <-chan os.Signal) {
	_ = os.Chdir("/") // no mount stays busy for a claim
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for _, fd := range []int{0, 2, 1} { // stdout last: its end tells that the rest is done
			_ = unix.Dup3(null, fd, 0)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		waitForEnd(holder, -1)
	}()
	for {
		select {
		case <-ended:
			return
		case sig := <-caught:
			if sig == unix.SIGHUP {
				continue // the terminal went; the holder's own end counts
			}
			a.giveBack(path, job)
			return
		}
	}
}

// closeInherited closes what the holder had open without meaning it for its programs: a
// lock, a pipe that somebody reads to its end. What this process opened itself is marked
// to be closed by exec.
func closeInherited() {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// giveBack releases a claim. Without a daemon it goes with this process.
func (a *app) giveBack(path string, job ipc.Token) {
	_ = withDaemon([]string{path}, patience, func(ctx context.Context, client *ipc.Client) error { return client.CloseJob(ctx, job) })
}

// waitForEnd waits until a process ends, for so long (below 0: as long as it takes).
func waitForEnd(pidfd int, most time.Duration) (ended bool) {
	until := time.Now().Add(most)
	for {
		timeout := -1
		if most >= 0 {
			timeout = int(max(time.Until(until), 0) / time.Millisecond)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, timeout)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n > 0
	}
}

// keeper is a keeper that was started, as its starter sees it.
type keeper struct {
	pid     int
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	to      *gob.Encoder
}

// startKeeper has a keeper open a job. Signals end the wait, and the keeper with it.
func (a *app) startKeeper(request keepRequest) (*keeper, ipc.JobOpenReply, error) {
	none := ipc.JobOpenReply{}
	command := exec.Command(executable(), keeperName, strconv.Itoa(request.Holder), request.Path)
	command.Stderr = os.Stderr
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true} // Ctrl-C at the terminal is the starter's
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, none, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, none, err
	}
	caught, stop := catchSignals()
	defer stop()
	if err := command.Start(); err != nil {
		return nil, none, fmt.Errorf("%s: %w", command.Path, err)
	}
	k := &keeper{pid: command.Process.Pid, command: command, stdin: stdin, stdout: stdout, to: gob.NewEncoder(stdin)}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			select {
			case sig := <-caught:
				if endsWait(sig) {
					_ = command.Process.Signal(sig)
				}
			case <-over:
				return
			}
		}
	}()
	var reply keepReply
	if err := k.to.Encode(request); err == nil {
		err = gob.NewDecoder(stdout).Decode(&reply)
		if err != nil {
			reply = keepReply{Code: exitFailed, Text: fmt.Sprintf("the keeper of the claim (process %d) ended: %v", k.pid, err)}
		}
	}
	if reply.Code != 0 {
		k.abandon()
		failed := &exitError{code: reply.Code}
		if reply.Text != "" {
			failed.err = errors.New(reply.Text)
		}
		return nil, none, failed
	}
	return k, reply.Job, nil
}

// keep tells the keeper that its answer has arrived where it was to go, and waits until
// it has let go of what was ours.
func (k *keeper) keep() error {
	err := k.to.Encode(true)
	if err == nil {
		_, err = io.Copy(io.Discard, k.stdout)
	}
	if err != nil {
		return fmt.Errorf("the keeper of the claim (process %d) ended: %w", k.pid, err)
	}
	return k.command.Process.Release()
}

// abandon ends a keeper that nobody needs.
func (k *keeper) abandon() {
	_ = k.stdin.Close()
	_ = k.command.Wait()
}

// endKeeper ends a keeper and waits for its end. It returns the environment that the
// keeper was started in.
func endKeeper(pid int) (environ []string, err error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil || !isKeeper(pid) {
		return nil, errors.New("there is no such claim (any more)")
	}
	defer unix.Close(pidfd)
	environ, err = procfacts.Here.Environ(pid)
	if err != nil {
		return nil, err
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGTERM, nil, 0); err != nil {
		return nil, err
	}
	if !waitForEnd(pidfd, patience) {
		return nil, fmt.Errorf("its keeper (process %d) does not end", pid)
	}
	return environ, nil
}

// ownClaim is the claim of the shell that this runs in; 0: it has none that still holds.
func (a *app) ownClaim() int {
	pid, err := strconv.Atoi(os.Getenv(claimName))
	if err != nil || pid <= 0 || !isKeeper(pid) {
		return 0
	}
	return pid
}

// isKeeper tells a keeper from another process that has its PID by now.
func isKeeper(pid int) bool { return keeperArguments(pid) != nil }

// keeperArguments are the words of a keeper's command line; nil: it is none.
func keeperArguments(pid int) []string {
	args, err := procfacts.Here.Arguments(pid)
	if err != nil || len(args) < 2 || args[1] != keeperName {
		return nil
	}
	return args
}

// claimsOf are the claims that a process has of the daemon at a socket ("": of any), whether their
// variables are set or not.
func claimsOf(holder int, socket string) (claims []int) {
	pids, err := procfacts.Here.PIDs()
	if err != nil {
		return nil
	}
	for _, pid := range pids {
		args := keeperArguments(pid)
		if len(args) == 4 && args[2] == strconv.Itoa(holder) && (socket == "" || args[3] == socket) {
			claims = append(claims, pid)
		}
	}
	return claims
}

// commandName is a process's name for people.
func commandName(pid int) string {
	name, err := procfacts.Here.Name(pid)
	if err != nil {
		return "process"
	}
	return name
}

// shellOf is the process that a command's parent stands for: a shell makes a subshell of
// itself for $(…), a pipe or parentheses, and that one is gone in a moment.
func shellOf(parent int) (int, error) {
	for {
		if parent <= 1 {
			return 0, errors.New("the process that asked has ended")
		}
		next, err := procfacts.Here.Parent(parent)
		if err != nil || next <= 1 || !sameProgram(parent, next) {
			return parent, nil
		}
		parent = next
	}
}

// sameProgram tells that one process is a fork of the other that has not become another
// program.
func sameProgram(a, b int) bool {
	exeA, errA := procfacts.Here.Executable(a)
	exeB, errB := procfacts.Here.Executable(b)
	argsA, errC := procfacts.Here.Arguments(a)
	argsB, errD := procfacts.Here.Arguments(b)
	return errors.Join(errA, errB, errC, errD) == nil && exeA == exeB && slices.Equal(argsA, argsB)
}
