package rows

// This file asks the history's process. The commands of gpuarb call it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
)

// SocketOf returns the path of the history's socket, given the path of the daemon's socket.
func SocketOf(daemon string) string { return filepath.Join(filepath.Dir(daemon), SocketName) }

// Ask sends a question to the socket at a path, and calls each for every line of the answer. It closes the connection if ctx
// ends.
func Ask(ctx context.Context, path string, q Question, each func(Line) error) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return err
	}
	lines := json.NewDecoder(conn)
	for {
		var line Line
		if err := lines.Decode(&line); err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("the answer ended early: %w", err))
		}
		switch {
		case line.Error != "":
			return errors.New(line.Error)
		case line.End:
			return nil
		}
		if err := each(line); err != nil {
			return err
		}
	}
}
