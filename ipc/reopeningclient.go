package ipc

import (
	"context"
	"sync"
)

// ReopeningClient is a connection for whoever asks again and again. It stays open between two questions: when others have taken all
// connections that are to be had, a new one would be turned away. It is for several goroutines, whose questions wait for each other.
type ReopeningClient struct {
	Open func(context.Context) (*Client, error)

	mu     sync.Mutex
	client *Client // nil or closed: to be opened
}

// Ask has f ask over the connection. Where that has ended, as when the daemon was started again, f is called once more with a new one.
func (k *ReopeningClient) Ask(ctx context.Context, f func(*Client) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client != nil {
		if err := f(k.client); !k.client.Closed() || ctx.Err() != nil {
			return err
		}
	}
	client, err := k.Open(ctx)
	if err != nil {
		return err
	}
	k.client = client
	return f(client)
}
