package web

// This file runs the worker process. cmd/gpuarbd calls Run when the daemon has started it; package
// worker has the daemon's side.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/worker"
)

const (
	// Largest size of the line of settings, in bytes.
	maxSettings = 64 << 10
	// Number of descriptors that the process may have: one for each connection, and some for the Go
	// runtime.
	workerFiles = maxConns + 64
	// Soft memory limit of the Go runtime, in bytes.
	workerMemory = 256 << 20
)

// Run runs the worker; cmd/gpuarbd calls it. stdin is a pipe from the daemon. Its first line has
// the settings. When the pipe is closed, for example because the daemon died, Run ends.
func Run(stdin io.Reader, log *slog.Logger) error {
	in := bufio.NewReaderSize(stdin, maxSettings)
	settings, err := readSettings(in)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		return errors.New("this process runs as root: the page is served without privileges, or not at all")
	}
	// This happens under `gpuarbd --user` of root, whose folder is closed to others. Any other
	// error passes here, and the page shows it.
	if err := unix.Access(settings.Socket, unix.W_OK); errors.Is(err, unix.EACCES) {
		return fmt.Errorf("it would be served as user %d, who may not come to the daemon's socket %s: %w", os.Geteuid(), settings.Socket, err)
	}
	confine()
	file := os.NewFile(worker.ListenerFD, "listener")
	l, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("the listening socket: %w", err)
	}
	if unixListener, ok := l.(*net.UnixListener); ok { // the daemon owns the socket file
		unixListener.SetUnlinkOnClose(false) // it is the daemon's
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	from := newDaemonClient(settings.Socket)
	s := newServer(from.Snapshot, from.Metrics)
	s.readPast(from.minutes)
	s.watcher.alive = func() { _, _ = os.Stdout.WriteString(".") } // the daemon ends a process that stops to do so
	go s.watcher.run(ctx)
	go s.watcher.events.follow(ctx, from)
	return s.serve(ctx, l, settings.Hosts, log)
}

// readSettings reads the line of settings from the daemon.
func readSettings(in *bufio.Reader) (s worker.PageSettings, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return s, fmt.Errorf("gpuarbd %s is started by the daemon, not by hand: %w", worker.PageCommand, err)
	}
	return s, json.Unmarshal(line, &s)
}

// confine gives up resources that the process inherits and does not need. A failure does not
// matter.
func confine() {
	limit := &unix.Rlimit{Cur: workerFiles, Max: workerFiles}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, limit)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// The kernel kills the daemon last when memory is short. The page has no such need.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	debug.SetMemoryLimit(workerMemory)
}
