package archive

// This file runs the process that keeps the history. cmd/gpuarbd calls Run when the daemon has started it; package internal/worker has the
// daemon's side.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gpuarb/gpuarb/archive/rows"
	"github.com/gpuarb/gpuarb/internal/worker"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	maxSettings = 64 << 10
	maxBatch    = 64 << 20 // largest line of the daemon
	workerFiles = 512
	memoryLimit = 512 << 20        // soft limit of the Go runtime, in bytes
	beatEvery   = 5 * time.Second  // time between two heartbeats
	pruneEvery  = 10 * time.Minute // time between two removals of old rows
	lockWait    = 2 * time.Second  // for the lock, which the process of a daemon that has just died may hold
)

// keeper keeps the history of one daemon.
type keeper struct {
	settings rows.Settings
	store    *store
	pruned   time.Time  // when old rows were last removed
	mu       sync.Mutex // guards out; held while a line is written
	out      io.Writer
}

// Run keeps the history until the daemon closes its end of the pipe. The first line of stdin has the settings.
func Run(stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, maxSettings)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("gpuarbd %s is started by the daemon, not by hand: %w", rows.Command, err)
	}
	k := &keeper{out: stdout, pruned: time.Now()}
	if err := json.Unmarshal(line, &k.settings); err != nil {
		return err
	}
	confine()
	note, err := k.open()
	if err != nil {
		k.say(rows.Answer{Error: err.Error()})
		return err
	}
	defer func() { _ = k.store.close() }()
	file := os.NewFile(worker.ListenerFD, "listener")
	l, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("the listening socket: %w", err)
	}
	socket, ok := l.(*net.UnixListener)
	if !ok {
		return errors.New("the listening socket is no Unix socket")
	}
	socket.SetUnlinkOnClose(false) // the daemon owns the socket file
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer socket.Close()
	go newServer(k.store, k.settings.Owner).serve(ctx, socket)
	go k.beat(ctx)
	k.say(rows.Answer{Note: note})
	return k.readBatches(in)
}

// open opens the store. It waits up to lockWait for the lock: the process of the last daemon may still be writing what it has read.
func (k *keeper) open() (note string, err error) {
	for late := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		k.store, note, err = openStore(k.settings.Folder, k.settings.MaxBytes)
		if !errors.Is(err, errInUse) || time.Now().After(late) {
			return note, err
		}
	}
}

// confine gives up resources that the process inherits and does not need.
func confine() {
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: workerFiles, Max: workerFiles})
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) // the daemon's own value makes the kernel kill it last; this process may die earlier
	unix.Umask(0o077)
	debug.SetMemoryLimit(memoryLimit)
}

// say writes a line to the daemon.
func (k *keeper) say(a rows.Answer) {
	text, err := json.Marshal(a)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, _ = k.out.Write(append(text, '\n'))
}

// beat sends an empty answer every five seconds. The daemon ends a process that writes nothing (package internal/worker).
func (k *keeper) beat(ctx context.Context) {
	every := time.NewTicker(beatEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			k.say(rows.Answer{})
		}
	}
}

// readBatches reads batches from the daemon and writes them to the store until the pipe ends.
func (k *keeper) readBatches(in *bufio.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxBatch)
	for lines.Scan() {
		var b rows.Batch
		if err := json.Unmarshal(lines.Bytes(), &b); err != nil {
			return nil // the last line of a daemon that was killed may be a part of one
		}
		err := k.write(&b)
		if why := unusable(err); why != "" {
			return fmt.Errorf("%s is %s, and is kept as %s: %w", k.store.path, why, asideOf(k.store.path), errors.Join(err, setAside(k.store.path)))
		}
		if err != nil {
			k.say(rows.Answer{Error: err.Error()})
			continue
		}
		if err := k.store.shortenLog(); err != nil {
			k.say(rows.Answer{Error: err.Error()})
			continue
		}
		k.say(rows.Answer{Number: b.Number})
	}
	return lines.Err()
}

// write writes a batch to the store. If the store is full, write removes the oldest jobs and tries again. If it is still full, write writes
// the jobs in two halves.
func (k *keeper) write(b *rows.Batch) error {
	if time.Since(k.pruned) > pruneEvery {
		k.pruned = time.Now()
		if err := k.store.pruneOld(b.AtMs - k.settings.MaxAgeMs); err != nil {
			return err
		}
	}
	if err := k.store.writeBatch(k.settings.Daemon, b); !isFull(err) {
		return err
	}
	if err := k.store.pruneLarge(k.settings.MaxBytes); err != nil {
		return err
	}
	err := k.store.writeBatch(k.settings.Daemon, b)
	half := len(b.Jobs) / 2
	if !isFull(err) || half == 0 {
		return err
	}
	// A small store has no room for all the rows at once. Ended jobs of the first half can be removed to make room for the second half.
	if err := k.write(&rows.Batch{AtMs: b.AtMs, Jobs: b.Jobs[:half]}); err != nil {
		return err
	}
	return k.write(&rows.Batch{AtMs: b.AtMs, Jobs: b.Jobs[half:], Minutes: b.Minutes, Settled: b.Settled})
}

// isFull reports whether a statement failed because the store, or its disk, is full.
func isFull(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && failed.Code()&0xff == sqlite3.SQLITE_FULL
}
