package web

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
)

// askFor is how long the daemon may take to answer.
const askFor = 10 * time.Second

// source is the daemon, asked over its socket. It keeps a connection: when others have taken all that are to be had, a new one
// would be turned away, and the page be blind just then. It is for several goroutines.
type source struct {
	path string

	mu   sync.Mutex  // held while something is asked
	kept *ipc.Client // nil or closed: to be dialled
}

// ask has f ask the daemon. A connection that has ended, as when the daemon was started again, is replaced at once.
func (s *source) ask(ctx context.Context, f func(context.Context, *ipc.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept != nil {
		if err := f(ctx, s.kept); !s.kept.Closed() || ctx.Err() != nil {
			return err
		}
	}
	c, err := ipc.DialAny(ctx, []string{s.path})
	if err != nil {
		return err
	}
	s.kept = c
	return f(ctx, c)
}

// Snapshot is the whole state.
func (s *source) Snapshot(ctx context.Context) (snapshot accounting.Snapshot, err error) {
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
	c, err := ipc.DialAny(ctx, []string{s.path})
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Events(ctx, request, each)
}
