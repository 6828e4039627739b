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

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// This file has the keeper of a claim. The claim of a shell must outlast the command that asked for
// it, so `gpuarb claim` starts a keeper in the background. The keeper opens the job, and the daemon
// takes the keeper for the process that runs the job. It works in this order:
//
//   1. The keeper reads a claimRequest from its stdin, and writes a claimReply to its stdout.
//   2. It reads from stdin that the reply has arrived. If stdin ends first, the keeper ends.
//   3. It closes everything that belongs to its starter. The end of its stdout tells the starter so.
//   4. It ends when the holder ends, or when the claim is released.

const (
	keeperName = "claim-keeper"
	claimName  = "GPUARB_CLAIM" // in the environment of the holder: the PID of the keeper
)

// claimRequest is the request that a keeper reads from its stdin.
type claimRequest struct {
	Path   string // path of the socket of the daemon
	Holder int    // PID of the process whose end ends the claim
	Job    ipc.JobOpenRequest
}

// claimReply is the answer of a keeper.
type claimReply struct {
	Job  ipc.JobOpenReply
	Code int // exit code; 0: success
	Text string
}

func (a *app) keeperCommand() *cobra.Command {
	return &cobra.Command{
		Use:    keeperName,
		Short:  "keep a claim; started by gpuarb claim",
		Hidden: true,
		Args:   cobra.ArbitraryArgs, // the holder and the socket; claimsOf reads them from the command line
		RunE:   func(*cobra.Command, []string) error { return a.runKeeper(os.Stdin) },
	}
}

// runKeeper opens the job of the claim, answers the starter, and returns after the end of the holder
// or of the claim. The head of this file has the steps.
func (a *app) runKeeper(stdin io.Reader) error {
	closeInherited()
	caught := make(chan os.Signal, 64)
	signal.Notify(caught, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	from := gob.NewDecoder(stdin)
	var request claimRequest
	if err := from.Decode(&request); err != nil {
		return fail(exitUsage, "%s is started by gpuarb claim: %w", keeperName, err)
	}
	holder, err := unix.PidfdOpen(request.Holder, 0)
	if err != nil {
		return a.answerStarter(claimReply{Code: exitFailed, Text: fmt.Sprintf("process %d, which is to have the claim: %v", request.Holder, err)})
	}
	arrived := make(chan bool, 1)
	go func() {
		var yes bool
		err := from.Decode(&yes)
		if err != nil {
			caught <- unix.SIGTERM // the starter has gone, so give up a wait
		}
		arrived <- err == nil && yes
	}()
	job, err := a.openJob(request.Path, "", request.Job, caught)
	if err != nil {
		return a.answerStarter(failureOf(err))
	}
	if err := a.answerStarter(claimReply{Job: job}); err != nil || !<-arrived {
		return err
	}
	a.holdUntilEnd(request.Path, job.Job, holder, caught)
	return nil
}

// failureOf returns the reply that tells the starter of err.
func failureOf(err error) claimReply {
	exit := withCode(err, exitFailed)
	reply := claimReply{Code: exit.code}
	if exit.err != nil {
		reply.Text = exit.err.Error()
	}
	return reply
}

func (a *app) answerStarter(reply claimReply) error {
	return gob.NewEncoder(os.Stdout).Encode(reply)
}

// holdUntilEnd waits until the holder ends or the claim is released. When the holder ends,
// processes that it leaves behind keep the device. A release takes the device from them.
func (a *app) holdUntilEnd(path string, job ipc.Token, holder int, caught <-chan os.Signal) {
	_ = os.Chdir("/") // so that the claim keeps no mount busy
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for _, fd := range []int{0, 2, 1} { // stdout last, because its end tells the starter that the rest is done
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
				continue // the terminal has gone; only the end of the holder counts
			}
			a.closeJob(path, job)
			return
		}
	}
}

// closeInherited closes descriptors that the holder left open, such as a lock, or a pipe that a
// process reads to its end. Descriptors that this process opened itself have the close-on-exec
// flag, and stay.
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

// closeJob releases a claim. Without a daemon the claim ends with this process.
func (a *app) closeJob(path string, job ipc.Token) {
	_ = withDaemon([]string{path}, daemonTimeout, func(ctx context.Context, client *ipc.Client) error { return client.CloseJob(ctx, job) })
}

// waitForEnd waits until a process ends, at most for the time most; below 0: without a limit.
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

// keeper is a started keeper, from the view of its starter.
type keeper struct {
	pid     int
	command *exec.Cmd
	stdin   io.WriteCloser
	stdout  io.ReadCloser
	to      *gob.Encoder
}

// startKeeper starts a keeper, which opens a job. Signals end the wait, and the keeper with it.
func (a *app) startKeeper(request claimRequest) (*keeper, ipc.JobOpenReply, error) {
	none := ipc.JobOpenReply{}
	command := exec.Command(executable(), keeperName, strconv.Itoa(request.Holder), request.Path)
	command.Stderr = os.Stderr
	command.SysProcAttr = &unix.SysProcAttr{Setsid: true} // a session of its own, so that Ctrl-C at the terminal reaches only the starter
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
	var reply claimReply
	if err := k.to.Encode(request); err == nil {
		err = gob.NewDecoder(stdout).Decode(&reply)
		if err != nil {
			reply = claimReply{Code: exitFailed, Text: fmt.Sprintf("the keeper of the claim (process %d) ended: %v", k.pid, err)}
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

// keep tells the keeper that its answer has reached the user. It returns when the keeper has closed
// everything that belongs to this process.
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

// abandon ends a keeper that is not needed.
func (k *keeper) abandon() {
	_ = k.stdin.Close()
	_ = k.command.Wait()
}

// endKeeper ends a keeper and waits for its end. It returns the environment that the keeper was
// started with.
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
	if !waitForEnd(pidfd, daemonTimeout) {
		return nil, fmt.Errorf("its keeper (process %d) does not end", pid)
	}
	return environ, nil
}

// ownClaim returns the number of the claim of the shell that this process runs in; 0: no valid
// claim.
func (a *app) ownClaim() int {
	pid, err := strconv.Atoi(os.Getenv(claimName))
	if err != nil || pid <= 0 || !isKeeper(pid) {
		return 0
	}
	return pid
}

// isKeeper reports whether the process is a keeper. Another process may have the PID of a former
// keeper.
func isKeeper(pid int) bool { return keeperArguments(pid) != nil }

// keeperArguments returns the words of the command line of a keeper. It returns nil if the process
// is not a keeper.
func keeperArguments(pid int) []string {
	args, err := procfacts.Here.Arguments(pid)
	if err != nil || len(args) < 2 || args[1] != keeperName {
		return nil
	}
	return args
}

// claimsOf returns the claims that a process holds from the daemon at socket, in any shell
// variables or not. If socket is empty, claims from all daemons are returned.
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

// commandName returns the name of a process for messages.
func commandName(pid int) string {
	name, err := procfacts.Here.Name(pid)
	if err != nil {
		return "process"
	}
	return name
}

// shellOf returns the shell that asked for the claim. The parent of a command may be a subshell for
// $(…), a pipe or parentheses, which ends in a moment; its parent is the shell.
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

// sameProgram reports whether two processes run the same program with the same arguments, as a
// process and its fork do.
func sameProgram(a, b int) bool {
	exeA, errA := procfacts.Here.Executable(a)
	exeB, errB := procfacts.Here.Executable(b)
	argsA, errC := procfacts.Here.Arguments(a)
	argsB, errD := procfacts.Here.Arguments(b)
	return errors.Join(errA, errB, errC, errD) == nil && exeA == exeB && slices.Equal(argsA, argsB)
}
