package events

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This test holds what the journal gets of an event if systemd runs the daemon. The test itself listens at the
// journal's socket. read_test.go has the file and the command.

// underJournal starts a daemon in the way of systemd, with its standard error connected to the journal. In its mount namespace the
// test owns the journal's socket.
const underJournal = `#!/bin/sh
exec unshare -m sh -c '
	mount -t tmpfs none /run && mkdir -p /run/systemd/journal && ln -s %s /run/systemd/journal/socket || exit 1
	JOURNAL_STREAM=$(stat -L -c %%d:%%i /proc/self/fd/2) exec %s "$@"' sh "$@"
`

// TestJournal: events go to the journal with the fields of their lines, a sentence and a priority, and not to the log as well.
func TestJournal(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "100M", Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n", NoMount: true, Stopped: true, Quiet: true})
	path := filepath.Join(m.Dir, "journal")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	start := filepath.Join(m.Dir, "start")
	if err := bounded.WriteProgram(start, []byte(fmt.Sprintf(underJournal, path, rig.Build(t, "gpuarbd")))); err != nil {
		t.Fatal(err)
	}
	m.Use(start)
	m.Start()
	p := program(m, "--name", "train-a")
	refuse(m, p, 1)
	entry := entryWith(t, socket, "GPUARB_KIND=refused")
	for _, want := range []string{"PRIORITY=6", "SYSLOG_IDENTIFIER=gpuarbd", "GPUARB_V=1", "GPUARB_DEVICE=0", "GPUARB_JOB=1", "GPUARB_JOB_NAME=train-a",
		"GPUARB_REASON=too_large", "GPUARB_REQUESTED_BYTES=209715200", fmt.Sprint("GPUARB_PID=", p.PID()), "GPUARB_USER=" + rig.User()} {
		if !strings.Contains(entry, "\n"+want+"\n") && !strings.HasPrefix(entry, want+"\n") {
			t.Errorf("no %s in\n%s", want, entry)
		}
	}
	if !strings.Contains(entry, "\nMESSAGE=") || !strings.Contains(entry, "is refused: out of memory on GPU 0") {
		t.Errorf("no sentence in\n%s", entry)
	}
	if log := m.Log(); strings.Contains(log, "is refused") || !strings.Contains(log, "ready") {
		t.Errorf("the log:\n%s", log)
	}
}

// entryWith reads the journal's entries up to one that has a field.
func entryWith(t *testing.T, socket *net.UnixConn, field string) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	for entry := make([]byte, 1<<16); ; {
		n, err := socket.Read(entry)
		if err != nil {
			t.Fatalf("no entry with %s: %v", field, err)
		}
		if strings.Contains(string(entry[:n]), field+"\n") {
			return string(entry[:n])
		}
	}
}
