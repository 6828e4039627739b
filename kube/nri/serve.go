package nri

// This file keeps the plug-in connected to the runtime.

import (
	"context"
	"log"
	"time"

	"github.com/containerd/nri/pkg/stub"
)

// reconnect is the time from a lost connection, or a failed attempt, to the next attempt.
const reconnect = time.Second

// Serve connects the plug-in to the runtime, and answers the runtime's events until ctx ends. It returns an error only if the first attempt to
// connect fails. If the runtime closes the connection later, because it ends or an answer took too long, Serve connects again.
func (p *Plugin) Serve(ctx context.Context, options ...stub.Option) error {
	for first := true; ; first = false {
		s, err := stub.New(p, options...)
		if err == nil {
			err = s.Start(ctx)
		}
		switch {
		case err == nil:
			ends := context.AfterFunc(ctx, s.Stop)
			s.Wait()
			ends()
		case first:
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		log.Printf("the runtime's connection is closed: containers that start now have no budget until it is back (%v)", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnect):
		}
	}
}
