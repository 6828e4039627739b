package web

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gpuarb/gpuarb/figures"
	"github.com/gpuarb/gpuarb/ipc"
)

// askFor is how long the daemon may take to answer.
const askFor = 10 * time.Second

// source is the daemon, asked over its socket. It is for several goroutines.
type source struct {
	path string
	kept ipc.Kept
}

func newSource(path string) *source {
	s := &source{path: path}
	s.kept.Open = s.dial
	return s
}

func (s *source) dial(ctx context.Context) (*ipc.Client, error) {
	return ipc.DialAny(ctx, []string{s.path})
}

// ask has f ask the daemon.
func (s *source) ask(ctx context.Context, f func(context.Context, *ipc.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return s.kept.Ask(ctx, func(c *ipc.Client) error { return f(ctx, c) })
}

// Snapshot is the whole state.
func (s *source) Snapshot(ctx context.Context) (snapshot figures.Snapshot, err error) {
	err = s.ask(ctx, func(ctx context.Context, c *ipc.Client) error {
		text, err := c.Snapshot(ctx)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &snapshot)
	})
	return snapshot, err
}

// Metrics are the daemon's, in Prometheus' text format.
func (s *source) Metrics(ctx context.Context) (text []byte, err error) {
	err = s.ask(ctx, func(ctx context.Context, c *ipc.Client) error {
		text, err = c.Metrics(ctx)
		return err
	})
	return text, err
}

// events follows the daemon's events, on a connection of its own, as nothing else may be asked there.
func (s *source) events(ctx context.Context, request ipc.EventsRequest, each func(ipc.EventsPart, []byte) error) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Events(ctx, request, each)
}
