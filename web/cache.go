package web

// This file reuses texts that take long to compute. server.go uses it for /metrics and /history.

import (
	"context"
	"sync"
	"time"
)

// cacheFor is how long a text is reused.
const cacheFor = time.Second

// cachedText answers all requests within a second with one text that takes long to compute. The
// metrics need a question to the daemon. A span is a megabyte if many jobs run on eight
// devices.
type cachedText struct {
	make func(context.Context) ([]byte, error)
	// held while the text is computed
	mu   sync.Mutex // held while it is made
	text []byte
	till time.Time
}

// get returns the text, which is at most a second old.
func (m *cachedText) get(ctx context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.till) {
		return m.text, nil
	}
	text, err := m.make(context.WithoutCancel(ctx)) // other requests wait for the text too
	if err != nil {
		return nil, err
	}
	m.text, m.till = text, time.Now().Add(cacheFor)
	return text, nil
}
