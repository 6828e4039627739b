package ipc

// This file keeps one connection open for a program that asks again and again, such as the web page. client.go has
// the connection itself.

import (
	"context"
	"sync"
)

// ReopeningClient keeps its connection open between two requests, because a new connection could be refused while
// other clients use all that the daemon allows. It opens another connection if the old one has ended. Several
// goroutines may use it; their requests wait for each other.
type ReopeningClient struct {
	Open func(context.Context) (*Client, error)

	mu     sync.Mutex
	client *Client // nil or closed: the next Ask opens a connection
}

// Ask calls f with the connection. If the connection ended during the call, for example because the daemon restarted,
// Ask calls f once more with a new connection.
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
