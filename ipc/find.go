package ipc

// This file chooses the socket of a daemon and connects to it. Commands and Go programs call it; the C library has
// its own copy of the rule in cshim/core.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The paths of the system daemon's socket. ClientSocket is a second path of that socket, in a folder without other
// files, which is made visible in containers.
const (
	SystemSocket = "/run/gpuarb/gpuarb.sock"
	ClientSocket = "/run/gpuarb/client/gpuarb.sock"
)

// FindSocket returns the paths at which to look for a daemon, in order. If GPUARB_SOCKET is set, it is the only path.
// Otherwise the user's own daemon comes before the system's. If XDG_RUNTIME_DIR is unset or relative, /run/user/UID
// takes its place; the XDG standard tells programs to ignore a relative one. env has the contract of os.Getenv.
func FindSocket(env func(string) string, uid int) []string {
	if path := env("GPUARB_SOCKET"); path != "" {
		return []string{path}
	}
	dir := env("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) {
		if uid == 0 {
			return []string{SystemSocket}
		}
		dir = fmt.Sprintf("/run/user/%d", uid)
	}
	return []string{filepath.Join(dir, "gpuarb", "gpuarb.sock"), SystemSocket}
}

// Attempt is one path that was tried, with its error.
type Attempt struct {
	Path string
	Err  error
}

// NoDaemonError means that no daemon answers; it has the error of each path. errors.Is finds ErrNoDaemon in it.
type NoDaemonError struct {
	Tried []Attempt
}

// Error lists the paths with the reason for each, and advises to start a daemon.
func (e *NoDaemonError) Error() string {
	return e.WithAdvice("start gpuarbd, or set GPUARB_SOCKET")
}

// WithAdvice returns the text of Error with another advice at its end.
func (e *NoDaemonError) WithAdvice(advice string) string {
	tried := make([]string, len(e.Tried))
	for i, a := range e.Tried {
		tried[i] = fmt.Sprintf("%s: %s", a.Path, reason(a.Err))
	}
	return fmt.Sprintf("%v (tried %s); %s", ErrNoDaemon, strings.Join(tried, "; "), advice)
}

// Unwrap returns ErrNoDaemon and the error of each path.
func (e *NoDaemonError) Unwrap() []error {
	errs := []error{ErrNoDaemon}
	for _, a := range e.Tried {
		errs = append(errs, a.Err)
	}
	return errs
}

// reason returns the system call's error alone if err has one, because the rest of a dial error repeats the path.
func reason(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// DialAny connects to the first path at which a daemon answers. For SystemSocket it tries ClientSocket too. After any
// failure it tries the next path. If all fail, the error is a *NoDaemonError with the reason of each path; if ctx
// ends, it is ctx's error.
func DialAny(ctx context.Context, paths []string) (*Client, error) {
	var tried []Attempt
	for _, path := range paths {
		c, err := Dial(ctx, path)
		if path == SystemSocket && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)) {
			if other, why := Dial(ctx, ClientSocket); why == nil {
				return other, nil
			}
		}
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		tried = append(tried, Attempt{Path: path, Err: err})
	}
	return nil, &NoDaemonError{Tried: tried}
}
