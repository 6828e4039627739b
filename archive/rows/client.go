package rows

// This file asks the history's process. The commands of gpuarb call it.

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
)

// SocketOf returns the path of the history's socket, given the path of the daemon's socket.
func SocketOf(daemon string) string { return filepath.Join(filepath.Dir(daemon), SocketName) }

// ErrEndedEarly is the error of an answer without its last line: the process has ended, or has closed the connection.
var ErrEndedEarly = errors.New("the answer ended early")

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
	asked := json.NewEncoder(conn).Encode(q) // it fails if the process has refused the connection and closed it; the reason can still be read
	lines := json.NewDecoder(conn)
	for {
		var line Line
		if err := lines.Decode(&line); err != nil {
			return errors.Join(ctx.Err(), ErrEndedEarly, asked, err)
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
