package bench

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// growthOut is where BenchmarkGrowth writes what it found: NAME.svg, and NAME.md with the table.
var growthOut = flag.String("bench.growth", "", "write table and plot of how it grows to `NAME`.md and NAME.svg")

// growthAsks is how often each point of BenchmarkGrowth asks the daemon.
var growthAsks = flag.Int("bench.asks", 4000, "how often each point of the growth asks")

// curve is a figure over how many of something there are.
type curve struct {
	over, what, unit string
	points           []point
}

type point struct{ n, value float64 }

func (c *curve) add(n int, value float64) {
	c.points = append(c.points, point{float64(n), value})
}

// BenchmarkGrowth is how what a program waits for grows: a request to the daemon with other leases
// and beside others that wait at the device, and an allocation under the library with threads. Without
// -bench.growth it is a few points, to see that it works.
func BenchmarkGrowth(b *testing.B) {
	leases := &curve{over: "other leases", what: "a request, median", unit: "times an echo"}
	waiting := &curve{over: "requests that wait at the device", what: "a request, median", unit: "times an echo"}
	threads := &curve{over: "threads of a process", what: "allocate and free, added", unit: "ns of a processor"}
	with, beside := []int{1, 10}, []int{0, 10}
	if *growthOut != "" {
		with, beside = []int{1, 10, 100, 1000, 10000}, []int{0, 1, 10, 100, 1000, mostWaiting(b)}
		threadsGrow(b, threads)
	}
	for _, n := range with {
		leases.add(n, askBesideLeases(b, n))
	}
	for _, n := range beside {
		waiting.add(n, askBesideWaiting(b, n))
	}
	if *growthOut == "" {
		return
	}
	curves := []*curve{leases, waiting, threads}
	for name, text := range map[string]string{".md": table(curves), ".svg": plot(curves)} {
		if err := os.WriteFile(*growthOut+name, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// askedOf is the median that an ask program measures, in those of a bare echo: how soon the machine
// wakes, which differs by tens of microseconds from one run to the next, is in both.
// What a request costs the daemon is its processor time alone.
func askedOf(b *testing.B, m *rig.Machine, p *process) float64 {
	var p50, p99, mean, echo float64
	before := cpu(b, m)
	if _, err := fmt.Sscan(p.ask(b, fmt.Sprint(*growthAsks)), &p50, &p99, &mean, &echo); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpu(b, m)-before).Nanoseconds())/float64(*growthAsks), "daemon-ns")
	b.ReportMetric(p50, "p50-ns")
	b.ReportMetric(echo, "echo-p50-ns")
	return p50 / echo
}

// onOneProcessor has what is started from here on share one processor: whether two ends of a socket do makes
// a difference of three times, and the scheduler has them do so or not for as long as they live.
func onOneProcessor(b *testing.B) {
	var all, one unix.CPUSet
	runtime.LockOSThread()
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		b.Fatal(err)
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = unix.SchedSetaffinity(0, &all)
		runtime.UnlockOSThread()
	})
}

func asker(b *testing.B, m *rig.Machine) *process {
	return start(b, m.Command(m.Env(), rig.Build(b, "bench/ask"), m.Socket, m.Snapshot().Devices[0].UUID))
}

func askBesideLeases(b *testing.B, n int) (times float64) {
	b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
		onOneProcessor(b)
		m := rig.New(b, rig.Options{Devices: devices, NoMount: true, Daemon: []string{"--debug=false"}})
		crowd(b, m, n, max(1, n/2500))
		times = askedOf(b, m, asker(b, m))
	})
	return times
}

// mostWaiting is 8,000, or half as many as the daemon may have descriptors: connections of further threads may take three
// quarters of them, less what the sessions of these have.
func mostWaiting(b *testing.B) int {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		b.Fatal(err)
	}
	return min(8000, int(files.Max/2))
}

// askBesideWaiting asks where others wait for more than is free. Who asks holds something before
// they come: else it would be behind them.
func askBesideWaiting(b *testing.B, n int) (times float64) {
	b.Run(fmt.Sprintf("waiting=%d", n), func(b *testing.B) {
		onOneProcessor(b)
		m := rig.New(b, rig.Options{Devices: "64T", NoMount: true, Daemon: []string{"--debug=false"},
			Config: "schema_version = 1\n[defaults]\non_full = \"wait\"\nwait_timeout = \"24h\"\nage_after = \"24h\"\n"})
		s, slot := session(b, m)
		if _, err := s.Main.Alloc(context.Background(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 60 << 40}); err != nil {
			b.Fatal(err)
		}
		p := asker(b, m)
		p.ask(b, "1")
		for left := n; left > 0; left -= waitersOfProcess {
			start(b, m.Command(append(m.Env(), hostileVariable+"="+waiters, fmt.Sprintf("HOSTILE_COUNT=%d", min(left, waitersOfProcess)),
				"GPUARB_SOCKET="+m.Socket, "HOSTILE_DEVICES="+uuids(m)), os.Args[0]))
		}
		if got := len(m.Snapshot().Queue); got != n {
			b.Fatalf("%d wait, want %d", got, n)
		}
		times = askedOf(b, m, p)
	})
	return times
}

// waiters names the process that waits, of which each has up to so many requests.
const (
	waiters          = "waiters"
	waitersOfProcess = 480
)

// wait has many requests wait until standard input ends.
func (h *hostile) wait(count int) {
	const ofSession = 60
	var c *ipc.Client
	var token ipc.Token
	var slot uint32
	var told sync.WaitGroup
	told.Add(count)
	for i := range count {
		if i%ofSession == 0 {
			c, token, slot = h.session(0)
		} else {
			c = h.dial()
			if err := c.Join(context.Background(), token); err != nil {
				panic(err)
			}
		}
		go func(c *ipc.Client, slot uint32) {
			once := sync.OnceFunc(told.Done)
			_, err := c.AllocWaiting(context.Background(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 10 << 40, Thread: uint32(i + 1)},
				ipc.Wait{Told: func(ipc.WaitingReply) { once() }})
			panic(fmt.Sprintf("it is over: %v", err))
		}(c, slot)
	}
	told.Wait()
	h.ready()
	_, _ = io.Copy(io.Discard, os.Stdin) // until nobody needs it any more
	os.Exit(0)
}

// threadsGrow reads what the library's own benchmark prints for more and more threads.
func threadsGrow(b *testing.B, c *curve) {
	cmd := bounded.Command(b, bounded.Lifetime, rig.Build(b, "cshim-bench"), "growth")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var threads, count int
		var ns float64
		if _, err := fmt.Sscanf(lines.Text(), "BenchmarkShimAllocFree/held=0/threads=%d %d %f", &threads, &count, &ns); err == nil {
			c.add(threads, ns)
		}
	}
	if len(c.points) == 0 {
		b.Fatalf("no figures in %q", out)
	}
}

// table is the curves as Markdown.
func table(curves []*curve) string {
	var t strings.Builder
	for _, c := range curves {
		fmt.Fprintf(&t, "| %s |", c.over)
		for _, p := range c.points {
			fmt.Fprintf(&t, " %.0f |", p.n)
		}
		fmt.Fprintf(&t, "\n|%s\n| %s, %s |", strings.Repeat(" ---: |", len(c.points)+1), c.what, c.unit)
		for _, p := range c.points {
			fmt.Fprintf(&t, " %.2f |", p.value)
		}
		t.WriteString("\n\n")
	}
	return t.String()
}

// The plot: one panel for each curve, the number on a logarithmic axis, the figure on one from 0.
const (
	panelWidth, panelHeight = 300, 240
	left, top, inner        = 48, 36, 150
)

func plot(curves []*curve) string {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		panelWidth*len(curves), panelHeight)
	s.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, c := range curves {
		fmt.Fprintf(&s, `<g transform="translate(%d,0)">`+"\n", i*panelWidth)
		c.draw(&s)
		s.WriteString("</g>\n")
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func (c *curve) draw(s *strings.Builder) {
	most := 0.0
	for _, p := range c.points {
		most = max(most, p.value)
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	most = step * math.Ceil(most/step)
	width, last := float64(panelWidth-left-20), math.Log10(c.points[len(c.points)-1].n+1)
	x := func(n float64) float64 { return left + width*math.Log10(n+1)/last }
	y := func(v float64) float64 { return top + inner*(1-v/most) }
	fmt.Fprintf(s, `<text x="%d" y="14">%s, %s</text>`+"\n", 8, c.what, c.unit)
	fmt.Fprintf(s, `<text x="%.0f" y="%d" text-anchor="middle">%s</text>`+"\n", left+width/2, top+inner+34, c.over)
	for _, v := range []float64{0, most / 2, most} {
		fmt.Fprintf(s, `<path d="M%d %.1fh%.0f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y(v), width, left-6, y(v)+4, v)
	}
	var path strings.Builder
	for i, p := range c.points {
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(p.n), y(p.value))
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="3" fill="#06c"/><text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n",
			x(p.n), y(p.value), x(p.n), top+inner+16, p.n)
	}
	fmt.Fprintf(s, `<path d="%s" fill="none" stroke="#06c" stroke-width="1.5"/>`+"\n", path.String())
}
