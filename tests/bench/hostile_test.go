package bench

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file measures an honest client beside hostile processes, and has these processes. ask_test.go measures without them.

// BenchmarkBesideHostile measures the median round trip of an honest request, alone and beside one hostile process, in
// turns: each round starts a hostile process and ends it. The hostile process has the lowest priority, so that the
// benchmark measures the daemon's work for it and not its own work. On a machine that is busy otherwise it hardly runs,
// and the figures are meaningless. ratio is the time beside it divided by the time alone, as the median over the
// rounds. own-ratio is the same ratio of the daemon's own time for a request; it is reported only if the hostile
// process requests no memory.
func BenchmarkBesideHostile(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(hostiles)) {
		b.Run("by="+name, func(b *testing.B) {
			files := slices.Contains([]string{"idle", "cat", "echo"}, name) // so that only the honest process requests memory
			m := rig.New(b, rig.Options{Devices: "64T,64T", NoMount: !files, Binary: *daemonPath,
				Daemon: []string{"--debug=false"}}) // else this process must read the lines
			if err := os.Chmod(m.Dir, 0o755); err != nil { // the hostile process runs as another user
				b.Fatal(err)
			}
			var alone, beside, ratios, own []float64
			s, slot := session(b, m) // the requests that wait for the device need this session
			honest := func() (roundTrip, inDaemon float64) {
				if !files {
					return honestMedian(b, s, slot), 0
				}
				before := took(b, m)
				roundTrip = honestMedian(b, s, slot)
				return roundTrip, took(b, m).since(before).percentile(50)
			}
			for range b.N {
				x, ownX := honest()
				h := start(b, m.Command(append(m.Env(), hostileVariable+"="+name, "GPUARB_SOCKET="+m.Socket, "HOSTILE_MOUNT="+m.Mount,
					"HOSTILE_DEVICES="+uuids(m)), "nice", "-n", fmt.Sprint(*niceness), os.Args[0]))
				y, ownY := honest()
				_ = h.cmd.Process.Kill()
				h.end()
				rig.Eventually(b, "the hostile process is gone", func() bool {
					return len(m.Snapshot().Processes) == 1 && len(m.Snapshot().Queue) == 0
				})
				alone, beside, ratios, own = append(alone, x), append(beside, y), append(ratios, y/x), append(own, ownY/ownX)
			}
			slices.Sort(ratios)
			b.ReportMetric(middle(alone), "alone-p50-ns")
			b.ReportMetric(middle(beside), "beside-p50-ns")
			b.ReportMetric(middle(ratios), "ratio")
			b.ReportMetric(ratios[0], "ratio-min")
			b.ReportMetric(ratios[len(ratios)-1], "ratio-max")
			if files {
				b.ReportMetric(middle(own), "own-ratio")
			}
		})
	}
}

// honestMedian returns the median round trip of a client's requests, in nanoseconds.
func honestMedian(b *testing.B, s *ipc.ShimSession, slot uint32) float64 {
	b.Helper()
	took := make([]time.Duration, 5000)
	for i := range took {
		began := time.Now()
		if _, err := s.Main.Alloc(context.Background(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 4096}); err != nil {
			b.Fatal(err)
		}
		took[i] = time.Since(began)
	}
	return float64(percentile(took, 50).Nanoseconds())
}

func uuids(m *rig.Machine) string {
	var all []string
	for _, d := range m.Snapshot().Devices {
		all = append(all, strings.ReplaceAll(strings.TrimPrefix(d.UUID, "GPU-"), "-", ""))
	}
	return strings.Join(all, ",")
}

func parse(text string) (id ipc.UUID) {
	if n, err := hex.Decode(id[:], []byte(text)); err != nil || n != len(id) {
		panic("no UUID: " + text)
	}
	return id
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// daemonPath selects a daemon of another commit.
var daemonPath = flag.String("bench.daemon", "", "another gpuarbd to measure")

// niceness is the hostile process's nice value; 0 lets it compete for the processors, too.
var niceness = flag.Int("bench.nice", 19, "of the hostile process")

// hostileVariable makes this binary a hostile process instead of the benchmarks.
const hostileVariable = "BENCH_HOSTILE"

func TestMain(m *testing.M) {
	if name := os.Getenv(hostileVariable); name != "" {
		h := &hostile{socket: os.Getenv("GPUARB_SOCKET"), mount: os.Getenv("HOSTILE_MOUNT")}
		if os.Geteuid() == 0 && name != waiters { // root would pass the bounds of users
			if err := errors.Join(syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
				panic(err)
			}
		}
		for _, text := range strings.Split(os.Getenv("HOSTILE_DEVICES"), ",") {
			h.devices = append(h.devices, parse(text))
		}
		if count, err := strconv.Atoi(os.Getenv("HOSTILE_COUNT")); name == waiters && err == nil {
			h.wait(count)
		}
		hostiles[name](h)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nobody is the UID of the hostile process if the benchmark runs as root.
const nobody = 65534

// hostile is this process while it repeats one operation as fast as possible, until it is killed.
type hostile struct {
	socket  string
	mount   string
	devices []ipc.UUID
	once    sync.Once
}

// ready prints "ready" when the operation has begun.
func (h *hostile) ready() { h.once.Do(func() { fmt.Println("ready") }) }

func (h *hostile) dial() *ipc.Client {
	c, err := ipc.Dial(context.Background(), h.socket)
	if err != nil {
		panic(err)
	}
	return c
}

// session opens a session with a lease on each device, and returns the slot of the first lease.
func (h *hostile) session(scope uint32) (*ipc.Client, ipc.Token, uint32) {
	c := h.dial()
	s, err := c.HelloShim(context.Background(), ipc.HelloRequest{Memory: ipc.NoLimit, SlotScope: scope})
	for errors.Is(err, ipc.StatusTooMany) { // the daemon still counts the ended sessions
		s, err = c.HelloShim(context.Background(), ipc.HelloRequest{Memory: ipc.NoLimit, SlotScope: scope})
	}
	if err != nil {
		panic(err)
	}
	var slot uint32
	for i, d := range slices.Backward(h.devices) {
		at, err := c.Attach(context.Background(), d)
		if err != nil {
			panic(err)
		}
		if i == 0 {
			slot = at.Slot
		}
	}
	return c, s.Hello.Session, slot
}

// all runs n calls of f at once, in endless loops.
func all(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for {
				f(i)
			}
		})
	}
	wg.Wait()
}

// pour sends messages without waiting for replies, and discards the replies.
func (h *hostile) pour(token ipc.Token, message []byte) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.socket, Net: "unixpacket"})
	if err != nil {
		return
	}
	defer c.Close()
	go func() {
		for room := make([]byte, 1<<16); ; {
			if _, err := c.Read(room); err != nil {
				return
			}
		}
	}()
	if !token.IsZero() {
		_, _ = c.Write(ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJoin, Request: 1}, &ipc.JoinRequest{Session: token}))
	}
	for err == nil {
		_, err = c.Write(message)
	}
}

// waiters is the operation of a process whose requests wait in the queue, for BenchmarkAsk.
const waiters = "waiters"

// wait makes waiting requests, one for each thread number, until standard input ends.
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
				ipc.Wait{OnNotice: func(ipc.WaitingReply) { once() }})
			panic(fmt.Sprintf("it is over: %v", err))
		}(c, slot)
	}
	told.Wait()
	h.ready()
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark ends
	os.Exit(0)
}

var hostiles = map[string]func(h *hostile){
	"cat": func(h *hostile) { // reads the table in a loop
		h.session(0)
		h.ready()
		for {
			if _, err := os.ReadFile(filepath.Join(h.mount, "leases")); err != nil {
				panic(err)
			}
		}
	},
	"idle": func(h *hostile) { // only has a session: the noise of the benchmark
		h.session(0)
		h.ready()
		time.Sleep(time.Hour)
	},
	"echo": func(h *hostile) { // sets its own limit in a loop
		h.session(0)
		h.ready()
		for file := filepath.Join(h.mount, "processes", fmt.Sprint(os.Getpid()), "memory.max"); ; {
			if err := os.WriteFile(file, []byte("1T"), 0); err != nil {
				panic(err)
			}
		}
	},
	"threads": func(h *hostile) { // uses all possible thread numbers
		c, _, slot := h.session(ipc.ScopeThread)
		for n := uint32(1); ; n++ {
			_ = ipc.CallWaiting(context.Background(), c, ipc.TypeContext, &ipc.ContextRequest{Slot: slot, Count: 1, Thread: n, Flags: ipc.FlagHold},
				&ipc.ContextReply{}, ipc.Wait{})
			if n == 8000 {
				h.ready()
			}
			if n > 8000 {
				_, _ = c.Stream(context.Background(), slot, 1)
				_, _ = c.Stream(context.Background(), slot, -1)
			}
		}
	},
	"leases": func(h *hostile) { // opens sessions with leases, one after another
		h.ready()
		all(4, func(int) {
			c, _, _ := h.session(0)
			_ = c.Bye(context.Background())
			_ = c.Close()
		})
	},
	"snapshots": func(h *hostile) {
		var clients []*ipc.Client
		for range 64 {
			clients = append(clients, h.dial())
		}
		h.ready()
		all(len(clients), func(i int) { _, _ = clients[i].Snapshot(context.Background()) })
	},
	"connections": func(h *hostile) { // opens more and more silent connections
		for range 800 {
			h.dial()
		}
		h.ready()
		all(8, func(int) {
			if c, err := net.Dial("unixpacket", h.socket); err == nil {
				_ = c.Close()
			}
		})
	},
	"queries": func(h *hostile) { // queries on as many connections as it may have
		var clients []*ipc.Client
		for range 8 {
			c, token, _ := h.session(0)
			clients = append(clients, c)
			for range 60 {
				other := h.dial()
				if err := other.Join(context.Background(), token); err == nil {
					clients = append(clients, other)
				}
			}
		}
		h.ready()
		all(len(clients), func(i int) { _, _ = clients[i].Query(context.Background(), h.devices[0]) })
	},
	"freed": func(h *hostile) { // sends notices, which get no answer
		_, token, slot := h.session(0)
		h.ready()
		all(16, func(int) {
			h.pour(token, ipc.Marshal(nil, ipc.Header{Type: ipc.TypeFreed, Request: 1}, &ipc.FreedNotice{Slot: slot}))
		})
	},
	"rubbish": func(h *hostile) {
		h.ready()
		all(16, func(int) {
			h.pour(ipc.Token{}, ipc.Marshal(nil, ipc.Header{Type: 9999, Request: 1}, &ipc.Empty{}))
		})
	},
	"tickets": func(h *hostile) { // makes and cancels waiting requests for the honest client's device
		var wg sync.WaitGroup
		for range 60 {
			wg.Add(1)
			go func() {
				told := sync.OnceFunc(wg.Done)
				for {
					c := h.dial()
					ctx, cancel := context.WithCancel(context.Background())
					_, _ = c.OpenJobWaiting(ctx, ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit, WaitMillis: ipc.NoLimit,
						Flags: ipc.JobExclusive | ipc.JobWait, Devices: 1}, ipc.Wait{OnNotice: func(ipc.WaitingReply) { told(); cancel() }})
					cancel()
					_ = c.Close()
				}
			}()
		}
		h.ready()
		wg.Wait()
		select {}
	},
	"limits": func(h *hostile) { // changes its own limit in a loop
		c, _, _ := h.session(0)
		h.ready()
		for n := uint64(1); ; n++ {
			_ = ipc.Call(context.Background(), c, ipc.TypeLimit, &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(os.Getpid()),
				Set: ipc.SetMax, Device: uint32(n % 2), Max: 1<<50 - n}, &ipc.Empty{})
		}
	},
}
