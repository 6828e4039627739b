package main

// This file connects to the daemon, asks it questions, and explains in plain words why the daemon
// could not be reached or refused. Every command that needs the daemon calls it. Package ipc has
// the protocol.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
	"golang.org/x/sys/unix"
)

// daemonTimeout bounds how long the daemon may take to answer. It usually answers within
// microseconds; a daemon that needs longer is stopped or stuck.
const daemonTimeout = 10 * time.Second

// theDaemon is the text that most commands pass to slow, which prints what a command waits for.
const theDaemon = "the daemon to answer"

// socketPaths returns the paths at which the socket of the daemon may be, in the order of the
// search.
func (a *app) socketPaths() []string {
	if a.socket != "" {
		return []string{a.socket}
	}
	return ipc.FindSocket(os.Getenv, os.Getuid())
}

// dial connects to the daemon. The error ends the program with exitUnavailable.
func (a *app) dial(ctx context.Context) (*ipc.Client, error) {
	client, err := ipc.DialAny(ctx, a.socketPaths())
	if a.socket != "" && errors.Is(err, ipc.ErrLongPath) {
		return nil, fail(exitUsage, "--socket: %w, not %d", ipc.ErrLongPath, len(a.socket))
	}
	if err != nil {
		return nil, &exitError{exitUnavailable, explainNoDaemon(err)}
	}
	a.sayOtherDaemon(client.Path())
	return client, nil
}

// connect dials the daemon and opens a session without a lease.
func (a *app) connect(ctx context.Context) (*ipc.Client, error) {
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := client.Hello(ctx, ipc.HelloRequest{Memory: ipc.NoLimit}); err != nil {
		_ = client.Close()
		return nil, &exitError{exitUnavailable, explainCall(client.Path(), err)}
	}
	return client, nil
}

// ask calls do with a session of the daemon. If that takes long, ask says what it waits for.
func (a *app) ask(do func(context.Context, *ipc.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	defer a.slow(theDaemon)()
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

// snapshot asks the daemon for its whole state.
func (a *app) snapshot() (snapshot figures.Snapshot, err error) {
	err = a.ask(func(ctx context.Context, client *ipc.Client) (err error) {
		a.sayWhichDaemon(client.Path())
		snapshot, err = snapshotOf(ctx, client)
		return err
	})
	a.sayConfigMistakes(snapshot)
	return snapshot, err
}

// sayConfigMistakes says on stderr that the configuration files have mistakes and are therefore not
// in force. Without mistakes it prints nothing.
func (a *app) sayConfigMistakes(s figures.Snapshot) {
	if text, advice := report.ConfigMistakes(s.Config); text != "" {
		a.say("%s\n%s", text, advice)
	}
}

// sayOtherDaemon says that the daemon of the user has died and another daemon answers instead. The
// socket file of a daemon remains only if the daemon died.
func (a *app) sayOtherDaemon(answers string) {
	if own := a.socketPaths()[0]; own != answers && isSocket(own) {
		a.say("your own daemon at %s does not answer; this is the system's at %s. Start yours again (gpuarbd --user), or remove its socket",
			own, answers)
	}
}

// sayWhichDaemon names the daemon that answers, if the user and the system each have a socket. It
// connects to neither, because a connection would make systemd start the other daemon.
func (a *app) sayWhichDaemon(answers string) {
	paths := a.socketPaths()
	if other := paths[len(paths)-1]; paths[0] == answers && other != answers && isSocket(other) {
		a.say("this is your own daemon at %s; for the system's: --socket %s", answers, other)
	}
}

func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

func snapshotOf(ctx context.Context, client *ipc.Client) (figures.Snapshot, error) {
	var snapshot figures.Snapshot
	text, err := client.Snapshot(ctx)
	if err != nil {
		return snapshot, &exitError{exitUnavailable, explainCall(client.Path(), err)}
	}
	if err := json.Unmarshal(text, &snapshot); err != nil {
		return snapshot, fail(exitFailed, "the daemon at %s sent a state that cannot be read: %w; are daemon and gpuarb of one version?", client.Path(), err)
	}
	return snapshot, nil
}

// connectQuietly opens a session at the first of paths at which a daemon answers, and prints
// nothing.
func connectQuietly(ctx context.Context, paths []string) (*ipc.Client, error) {
	client, err := ipc.DialAny(ctx, paths)
	if err != nil {
		return nil, explainNoDaemon(err)
	}
	if _, err := client.Hello(ctx, ipc.HelloRequest{Memory: ipc.NoLimit}); err != nil {
		_ = client.Close()
		return nil, explainCall(client.Path(), err)
	}
	return client, nil
}

// quietSnapshot returns the state of the daemon. It does not print which daemon answers, or that
// none does.
func (a *app) quietSnapshot(ctx context.Context) (s figures.Snapshot, err error) {
	client, err := connectQuietly(ctx, a.socketPaths())
	if err != nil {
		return s, err
	}
	defer client.Close()
	return snapshotOf(ctx, client)
}

// withDaemon calls do with a connection to the daemon at one of paths. All of it takes at most the
// time most.
func withDaemon(paths []string, most time.Duration, do func(context.Context, *ipc.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	client, err := ipc.DialAny(ctx, paths)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, client)
}

// explainNoDaemon says where the daemon was searched for, and what to do.
func explainNoDaemon(err error) error {
	var none *ipc.NoDaemonError
	if !errors.As(err, &none) {
		return err
	}
	for _, attempt := range none.Tried {
		if errors.Is(attempt.Err, unix.EACCES) {
			return errors.New(mayNotConnect(attempt.Path))
		}
	}
	return errors.New(none.WithAdvice("start gpuarbd, or name its socket with --socket or GPUARB_SOCKET"))
}

// explainCall says why a daemon that accepted the connection did not do what it was asked for.
func explainCall(path string, err error) error {
	var reply *ipc.ReplyError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reply) && reply.Text != "":
		return errors.New(reply.Text)
	case errors.As(err, &reply):
		return fmt.Errorf("the daemon at %s refused: %v", path, reply.Status)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("the daemon at %s does not answer; see its log (journalctl -u gpuarbd)", path)
	case ipc.IsEnd(err):
		return fmt.Errorf("the daemon at %s closed the connection; see its log (journalctl -u gpuarbd)", path)
	}
	return fmt.Errorf("the daemon at %s: %w", path, err)
}
