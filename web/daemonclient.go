package web

// This file asks the daemon over its socket. watcher.go and eventlog.go use it.

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// daemonTimeout bounds how long the daemon may take to answer.
const daemonTimeout = 10 * time.Second

// daemonClient asks the daemon over its socket. Several goroutines may use it.
type daemonClient struct {
	path string
	kept ipc.ReopeningClient
}

func newDaemonClient(path string) *daemonClient {
	s := &daemonClient{path: path}
	s.kept.Open = s.dial
	return s
}

func (s *daemonClient) dial(ctx context.Context) (*ipc.Client, error) {
	return ipc.DialAny(ctx, []string{s.path})
}

// ask calls f with a connection to the daemon.
func (s *daemonClient) ask(ctx context.Context, f func(context.Context, *ipc.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
	defer cancel()
	return s.kept.Ask(ctx, func(c *ipc.Client) error { return f(ctx, c) })
}

// Snapshot returns the whole state of the daemon.
func (s *daemonClient) Snapshot(ctx context.Context) (snapshot figures.Snapshot, err error) {
	err = s.ask(ctx, func(ctx context.Context, c *ipc.Client) error {
		text, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &snapshot)
	})
	return snapshot, err
}

// Metrics returns the metrics of the daemon in the text format of Prometheus.
func (s *daemonClient) Metrics(ctx context.Context) (text []byte, err error) {
	err = s.ask(ctx, func(ctx context.Context, c *ipc.Client) error {
		text, err = c.Metrics(ctx)
		return err
	})
	return text, err
}

// minutes calls each for the figures of every device in every minute of a time, sorted by minute. It
// asks the history's process, which does not run if the history is turned off.
func (s *daemonClient) minutes(ctx context.Context, since, until time.Time, each func(rows.Minute)) error {
	question := rows.Question{Want: rows.WantMinutes, SinceMs: since.UnixMilli(), UntilMs: until.UnixMilli()}
	return rows.Ask(ctx, rows.SocketOf(s.path), question, func(line rows.Line) error {
		if line.Minute != nil {
			each(*line.Minute)
		}
		return nil
	})
}

// events follows the events of the daemon. It uses a connection of its own, because such a
// connection cannot be used for other questions.
func (s *daemonClient) events(ctx context.Context, request ipc.EventsRequest, each func(ipc.EventsPart, []byte) error) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Events(ctx, request, each)
}
