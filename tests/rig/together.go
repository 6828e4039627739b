package rig

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// This file starts many instances of a program at once, for measurements.

// Together starts count instances of a program at once, with the same environment, and returns the time until all have ended.
// All of them must succeed within the limit of the test.
func (m *Machine) Together(count int, env []string, program string, args ...string) time.Duration {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), m.o.Life)
	defer cancel()
	failed := make(chan string, count)
	var all sync.WaitGroup
	began := time.Now()
	for range count {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = env
		all.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				failed <- fmt.Sprintf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if len(failed) > 0 {
		m.T.Fatalf("%d of %d failed; one: %s", len(failed), count, <-failed)
	}
	return took
}
