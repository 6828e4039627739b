package bench

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// BenchmarkAsk is a request for bytes that credit does not cover, and so the way
// to the daemon and back. From C it is asked with the shim's own system calls, in
// turns with a bare echo over the same kind of socket between two C programs;
// echo-p50-ns is the floor.
func BenchmarkAsk(b *testing.B) {
	for _, others := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			m := rig.New(b, rig.Options{Devices: devices, NoMount: true})
			crowd(b, m, others, max(1, others/2500))
			b.Run("from=c", func(b *testing.B) { askFromC(b, m) })
			b.Run("from=go", func(b *testing.B) { askFromGo(b, m) })
		})
	}
}

func askFromC(b *testing.B, m *rig.Machine) {
	p := start(b, m.Command(m.Env(), rig.Build(b, "bench/ask"), m.Socket, m.Snapshot().Devices[0].UUID))
	b.ResetTimer()
	answer := p.ask(b, fmt.Sprint(b.N))
	b.StopTimer()
	var p50, p99, mean, echo50, echo99, echoMean float64
	if _, err := fmt.Sscan(answer, &p50, &p99, &mean, &echo50, &echo99, &echoMean); err != nil {
		b.Fatalf("%q: %v", answer, err)
	}
	b.ReportMetric(mean, "ns/op") // without the echo's share of the time
	b.ReportMetric(p50, "p50-ns")
	b.ReportMetric(p99, "p99-ns")
	b.ReportMetric(echo50, "echo-p50-ns")
	b.ReportMetric(echo99, "echo-p99-ns")
}

func askFromGo(b *testing.B, m *rig.Machine) {
	s, slot := session(b, m)
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		if _, err := s.Main.Alloc(context.Background(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 4096}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	report(b, took)
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
