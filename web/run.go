package web

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

	"github.com/gpuarb/gpuarb/web/worker"
)

const (
	// maxSettings bounds the line of settings.
	maxSettings = 64 << 10
	// workerFiles is how many descriptors the process may have: one for each connection, and what Go itself needs.
	workerFiles = maxConns + 64
	// workerMemory is the soft memory limit of Go's runtime, in bytes.
	workerMemory = 256 << 20
)

// Run is the whole life of the worker; cmd/gpuarbd calls it. leash is the process's standard input, a pipe from the daemon: its
// first line has the settings, and when it is closed, as when the daemon dies, Run ends.
func Run(leash io.Reader, log *slog.Logger) error {
	in := bufio.NewReaderSize(leash, maxSettings)
	settings, err := readSettings(in)
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		return errors.New("this process runs as root: the page is served without privileges, or not at all")
	}
	// As of root's `gpuarbd --user`, whose folder is root's alone. Any other reason passes, and the page says it.
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
	if unixListener, ok := l.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false) // it is the daemon's
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	from := newSource(settings.Socket)
	s := newServer(from.Snapshot, from.Metrics)
	s.watcher.alive = func() { _, _ = os.Stdout.WriteString(".") } // the daemon ends a process that stopped to do so
	go s.watcher.run(ctx)
	go s.watcher.events.follow(ctx, from)
	return s.serve(ctx, l, settings.Hosts, log)
}

// readSettings reads the line that the daemon sends.
func readSettings(in *bufio.Reader) (s worker.Settings, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return s, fmt.Errorf("gpuarbd %s is started by the daemon, not by hand: %w", worker.Command, err)
	}
	return s, json.Unmarshal(line, &s)
}

// confine gives up what the process inherits and does not need. None of it may fail the page.
func confine() {
	limit := &unix.Rlimit{Cur: workerFiles, Max: workerFiles}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, limit)
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// The daemon is the last that the kernel kills for memory; the page is nothing special.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	debug.SetMemoryLimit(workerMemory)
}
