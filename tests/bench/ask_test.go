package bench

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures a request to the daemon, alone and beside waiting requests. The floor is an echo between two C
// programs in the same run. It also has the helpers for percentiles and sessions that other files use.

// BenchmarkAsk measures a request for bytes that credit does not cover: the way
// to the daemon and back. A program in C makes the library's own system calls, in
// turns with a bare echo over a socket of that kind between two C programs;
// echo-p50-ns is the floor. daemon-ns is the daemon's processor time for a request.
// Beside waiting requests, ratio is daemon-ns divided by the
// value of the same program before these requests came.
func BenchmarkAsk(b *testing.B) {
	b.Run("waiting=0", func(b *testing.B) {
		m := rig.New(b, rig.Options{Devices: devices, NoMount: true, Daemon: []string{"--debug=false"}})
		asked(b, m, asker(b, m)).report(b)
	})
	b.Run("waiting=200", askBesideWaiting)
}

// askBesideWaiting measures while requests of four processes wait. The asking program holds memory before they come,
// because requests of programs that hold none rank behind the waiting ones.
func askBesideWaiting(b *testing.B) {
	const processes, ofProcess = 4, 50
	m := rig.New(b, rig.Options{Devices: "64T", NoMount: true, Daemon: []string{"--debug=false"},
		Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"24h\"\nage_after = \"24h\"\n"})
	s, slot := session(b, m)
	if _, err := s.Main.Alloc(context.Background(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 60 << 40}); err != nil {
		b.Fatal(err)
	}
	p := asker(b, m)
	p.ask(b, "1")
	alone := asked(b, m, p)
	for range processes {
		start(b, m.Command(append(m.Env(), hostileVariable+"="+waiters, fmt.Sprintf("HOSTILE_COUNT=%d", ofProcess),
			"GPUARB_SOCKET="+m.Socket, "HOSTILE_DEVICES="+uuids(m)), os.Args[0]))
	}
	if got := len(m.Snapshot().Queue); got != processes*ofProcess {
		b.Fatalf("%d wait, want %d", got, processes*ofProcess)
	}
	beside := asked(b, m, p)
	beside.report(b)
	b.ReportMetric(beside.daemon/alone.daemon, "ratio")
}

func asker(b *testing.B, m *rig.Machine) *process {
	return start(b, m.Command(m.Env(), rig.Build(b, "bench/ask"), m.Socket, m.Snapshot().Devices[0].UUID))
}

// answers are the figures of many requests, in ns.
type answers struct {
	p50, p99, mean, echo50, echo99, echoMean float64
	daemon                                   float64 // processor time of the daemon for one request
}

// asked makes a program send b.N requests, and returns their figures.
func asked(b *testing.B, m *rig.Machine, p *process) (a answers) {
	b.Helper()
	before := cpu(b, m)
	b.ResetTimer()
	b.StartTimer() // an earlier call may have stopped it
	answer := p.ask(b, fmt.Sprint(b.N))
	b.StopTimer()
	if _, err := fmt.Sscan(answer, &a.p50, &a.p99, &a.mean, &a.echo50, &a.echo99, &a.echoMean); err != nil {
		b.Fatalf("%q: %v", answer, err)
	}
	a.daemon = float64((cpu(b, m) - before).Nanoseconds()) / float64(b.N)
	return a
}

func (a answers) report(b *testing.B) {
	b.ReportMetric(a.mean, "ns/op") // replaces Go's figure, which includes the echoes
	b.ReportMetric(a.p50, "p50-ns")
	b.ReportMetric(a.p99, "p99-ns")
	b.ReportMetric(a.echo50, "echo-p50-ns")
	b.ReportMetric(a.echo99, "echo-p99-ns")
	b.ReportMetric(a.daemon, "daemon-ns")
}

// session opens a session in this process, with a lease on the first device.
func session(b *testing.B, m *rig.Machine) (*ipc.ShimSession, uint32) {
	b.Helper()
	var uuid ipc.UUID
	id := strings.ReplaceAll(strings.TrimPrefix(m.Snapshot().Devices[0].UUID, "GPU-"), "-", "")
	if _, err := hex.Decode(uuid[:], []byte(id)); err != nil {
		b.Fatal(err)
	}
	c, err := ipc.Dial(context.Background(), m.Socket)
	if err != nil {
		b.Fatal(err)
	}
	s, err := c.HelloShim(context.Background(), ipc.HelloRequest{Memory: ipc.NoLimit})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Main.Bye(context.Background()); err != nil {
			b.Error(err)
		}
		_ = s.Page.Close()
	})
	reply, err := s.Main.Attach(context.Background(), uuid)
	if err != nil {
		b.Fatal(err)
	}
	return s, reply.Slot
}

// report adds percentiles to a benchmark whose rounds took these times.
func report(b *testing.B, took []time.Duration) {
	b.ReportMetric(float64(percentile(took, 50).Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(percentile(took, 99).Nanoseconds()), "p99-ns")
}

func percentile(took []time.Duration, percent int) time.Duration {
	slices.Sort(took)
	return took[len(took)*percent/100]
}
