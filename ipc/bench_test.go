package ipc

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// answerAllocs is the daemon of the benchmarks: it grants everything.
func answerAllocs(c *Conn) {
	for {
		m, err := c.ReadMessage()
		if err != nil {
			return
		}
		var req AllocRequest
		if Unmarshal(m.Body, &req) != nil || Reply(c, m.Header, StatusOK, &AllocReply{Granted: req.Bytes}, -1) != nil {
			return
		}
	}
}

// report adds percentiles to a benchmark whose rounds took these times.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// BenchmarkEcho is an Alloc and its reply between two processes: the daemon's end
// is ours, the other end is a client with blocking system calls, as the shim is.
func BenchmarkEcho(b *testing.B) {
	l := serve(b, ListenOptions{}, answerAllocs)
	b.ReportAllocs()
	client := startHelper(b, "echo", l.Path()+","+itoa(b.N), nil)
	b.ResetTimer()
	var p50, p99, mean float64
	if _, err := fmt.Sscan(client.line(b), &p50, &p99, &mean); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(p50, "p50-ns")
	b.ReportMetric(p99, "p99-ns")
}

// BenchmarkEchoGo is the same with a Client in the process of the daemon.
func BenchmarkEchoGo(b *testing.B) {
	l := serve(b, ListenOptions{}, answerAllocs)
	c := dial(b, l.Path())
	b.ReportAllocs()
	took := make([]time.Duration, 0, b.N)
	for b.Loop() {
		begin := time.Now()
		if _, err := c.Alloc(context.Background(), AllocRequest{Kind: MemoryPlain, Bytes: 4096}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	report(b, took)
}

// BenchmarkAccept is a connection made, identified, and closed again.
func BenchmarkAccept(b *testing.B) {
	l := listen(b, ListenOptions{})
	for b.Loop() {
		fd, err := rawConnect(l.Path())
		if err != nil {
			b.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
		unix.Close(fd)
	}
}

// helperEcho asks PATH,N times N and says p50, p99 and mean in ns.
func helperEcho(arg string) error {
	var n int
	i := len(arg) - 1
	for arg[i] != ',' {
		i--
	}
	if _, err := fmt.Sscan(arg[i+1:], &n); err != nil {
		return err
	}
	fd, err := rawConnect(arg[:i])
	if err != nil {
		return err
	}
	msg := Marshal(nil, Header{Type: TypeAlloc}, &AllocRequest{Kind: MemoryPlain, Bytes: 4096})
	buf := make([]byte, 1024)
	took := make([]time.Duration, n)
	var sum time.Duration
	for i := range took {
		begin := time.Now()
		if _, err := unix.Write(fd, msg); err != nil {
			return err
		}
		if _, err := read(fd, buf); err != nil {
			return err
		}
		took[i] = time.Since(begin)
		sum += took[i]
	}
	slices.Sort(took)
	fmt.Println(took[n/2].Nanoseconds(), took[n*99/100].Nanoseconds(), sum.Nanoseconds()/int64(n))
	return unix.Close(fd)
}
