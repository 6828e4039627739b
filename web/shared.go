package web

import (
	"context"
	"sync"
	"time"
)

// sharedFor is how long a text is reused.
const sharedFor = time.Second

// shared answers all requests within a second with one text that takes long to make: the metrics, for which the daemon is asked,
// and the last hour, which is a megabyte when many jobs run on eight devices.
type shared struct {
	make func(context.Context) ([]byte, error)

	mu   sync.Mutex // held while it is made
	text []byte
	till time.Time
}

// get returns the text, which is a second old at the most.
func (m *shared) get(ctx context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.till) {
		return m.text, nil
	}
	text, err := m.make(context.WithoutCancel(ctx)) // it is for the others too
	if err != nil {
		return nil, err
	}
	m.text, m.till = text, time.Now().Add(sharedFor)
	return text, nil
}
