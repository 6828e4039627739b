package ipc

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The paths of the system daemon's socket. ClientSocket is a second path of the same socket, in a folder that holds nothing else, which
// containers are given.
const (
	SystemSocket = "/run/gpuarb/gpuarb.sock"
	ClientSocket = "/run/gpuarb/client/gpuarb.sock"
)

// FindSocket is the order in which to look for a daemon. GPUARB_SOCKET alone
// counts when it is set; otherwise the user's own daemon comes before the
// system's. Without XDG_RUNTIME_DIR (or with a relative one, which its standard
// tells to ignore) a user's runtime directory is /run/user/UID. env is os.Getenv.
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

// Attempt is one path that was tried.
type Attempt struct {
	Path string
	Err  error
}

// NoDaemonError says that no daemon answers, and why on each path. It is
// ErrNoDaemon to errors.Is.
type NoDaemonError struct {
	Tried []Attempt
}

// Error lists the paths with the reason for each.
func (e *NoDaemonError) Error() string {
	return e.WithAdvice("start gpuarbd, or set GPUARB_SOCKET")
}

// WithAdvice is Error with other advice.
func (e *NoDaemonError) WithAdvice(advice string) string {
	tried := make([]string, len(e.Tried))
	for i, a := range e.Tried {
		tried[i] = fmt.Sprintf("%s: %s", a.Path, reason(a.Err))
	}
	return fmt.Sprintf("%v (tried %s); %s", ErrNoDaemon, strings.Join(tried, "; "), advice)
}

// Unwrap is ErrNoDaemon and the errors of each path.
func (e *NoDaemonError) Unwrap() []error {
	errs := []error{ErrNoDaemon}
	for _, a := range e.Tried {
		errs = append(errs, a.Err)
	}
	return errs
}

// reason is the system's word alone, where there is one: the rest of a dial
// error repeats the path.
func reason(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// DialAny connects to the first of the paths at which a daemon answers; for SystemSocket it tries ClientSocket as well. A path
// without a listener is passed over; any other failure there (no permission,
// say) is not hidden by trying elsewhere when a later path fails as well. The
// error is a *NoDaemonError, or ctx's.
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
