package web

import (
	"context"
	"sync"
	"time"
)

// metricsFor is how long the text of the metrics is reused.
const metricsFor = time.Second

// metrics answers all requests within a second from one request to the daemon.
type metrics struct {
	ask func(context.Context) ([]byte, error)

	mu   sync.Mutex // held while the daemon is asked
	text []byte
	till time.Time
}

// get returns the text, which is a second old at the most.
func (m *metrics) get(ctx context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.till) {
		return m.text, nil
	}
	text, err := m.ask(context.WithoutCancel(ctx)) // it is for the others too
	if err != nil {
		return nil, err
	}
	m.text, m.till = text, time.Now().Add(metricsFor)
	return text, nil
}
