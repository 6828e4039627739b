package attack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that clients which send malformed messages, open ten thousand connections, or never read replies
// cost other clients only time. million_test.go and fuzz_test.go use the generators of messages.

func init() {
	roles["babbler"] = babble
	roles["crowd"] = crowd
	roles["flooder"] = flood
}

// rubbish are generators of the messages that a babbler sends.
var rubbish = []func(r *rand.Rand, device ipc.UUID) []byte{
	func(r *rand.Rand, _ ipc.UUID) []byte { return noise(r, r.IntN(64)) },
	func(r *rand.Rand, _ ipc.UUID) []byte { return noise(r, r.IntN(100_000)) },
	func(r *rand.Rand, d ipc.UUID) []byte { m := request(r, d); return m[:r.IntN(len(m))] },
	func(r *rand.Rand, d ipc.UUID) []byte { return append(request(r, d), noise(r, 1+r.IntN(5000))...) },
	func(r *rand.Rand, d ipc.UUID) []byte {
		m := request(r, d)
		for range 1 + r.IntN(4) {
			m[r.IntN(len(m))] ^= byte(1 + r.IntN(255))
		}
		return m
	},
	func(r *rand.Rand, d ipc.UUID) []byte { return request(r, d) }, // well-formed, in random order
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

var extremes = []uint64{0, 1, 1 << 20, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 47, 1<<63 - 1, 1 << 63, 1<<64 - 1}

func extreme(r *rand.Rand) uint64 { return extremes[r.IntN(len(extremes))] }

// request returns a random request whose lengths, at least, are right.
func request(r *rand.Rand, device ipc.UUID) []byte {
	h := ipc.Header{Request: r.Uint64N(4)}
	slot := uint32(r.IntN(3))
	if r.IntN(10) == 0 {
		slot = uint32(extreme(r))
	}
	switch h.Type = ipc.Type(1 + r.IntN(10)); h.Type {
	case ipc.TypeHello:
		return ipc.Marshal(nil, h, &ipc.HelloRequest{Kind: ipc.KindShim, Memory: extreme(r), Streams: uint32(extreme(r))})
	case ipc.TypeJoin:
		return ipc.Marshal(nil, h, &ipc.JoinRequest{Session: ipc.Token(noise(r, ipc.TokenSize))})
	case ipc.TypeResume:
		req := ipc.ResumeRequest{Session: ipc.Token(noise(r, ipc.TokenSize)), Count: 1,
			Hello: ipc.HelloRequest{Kind: ipc.KindShim, Memory: ipc.NoLimit, StreamReserve: extreme(r)}}
		req.Leases[0] = ipc.ResumeLease{Device: device, Used: extreme(r), Streams: uint32(extreme(r)), Contexts: uint32(extreme(r)), Slot: slot}
		return ipc.Marshal(nil, h, &req)
	case ipc.TypeAttach:
		return ipc.Marshal(nil, h, &ipc.AttachRequest{Device: device})
	case ipc.TypeAlloc:
		return ipc.Marshal(nil, h, &ipc.AllocRequest{Slot: slot, Kind: uint32(r.IntN(6)), Bytes: extreme(r), Flags: uint32(r.IntN(3))})
	case ipc.TypeFreed:
		return ipc.Marshal(nil, h, &ipc.FreedNotice{Slot: slot})
	case ipc.TypeStream:
		return ipc.Marshal(nil, h, &ipc.StreamRequest{Slot: slot, Count: int32(uint32(extreme(r)))})
	case ipc.TypeContext:
		return ipc.Marshal(nil, h, &ipc.ContextRequest{Slot: slot, Count: int32(uint32(extreme(r)))})
	case ipc.TypeQuery:
		return ipc.Marshal(nil, h, &ipc.QueryRequest{Device: device})
	}
	if r.IntN(2) == 0 {
		h.Type = ipc.TypeJobOpen
		return ipc.Marshal(nil, h, &ipc.JobOpenRequest{Memory: extreme(r), Streams: uint32(extreme(r))})
	}
	h.Type = ipc.TypeBye
	return ipc.Marshal(nil, h, &ipc.Empty{})
}

// babble sends malformed messages ("UUID SEED MESSAGES") over one connection after another, some of
// them with descriptors, and sometimes reads the answers.
func babble(a *attacker) error {
	words, _ := a.next()
	var seed uint64
	var messages int
	if _, err := fmt.Sscan(words[1]+" "+words[2], &seed, &messages); err != nil {
		return err
	}
	device, r := parseUUID(words[0]), rand.New(rand.NewPCG(seed, 0))
	for messages > 0 {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: a.socket, Net: "unixpacket"})
		if err != nil {
			return err
		}
		for range 1 + r.IntN(30) {
			messages--
			m := rubbish[r.IntN(len(rubbish))](r, device)
			if r.IntN(3) == 0 {
				m = request(r, device)
			}
			var rights []byte
			if r.IntN(8) == 0 {
				rights = unix.UnixRights(0, 1, 2, int(os.Stdin.Fd()))[:unix.CmsgSpace(4*(1+r.IntN(4)))]
			}
			if _, _, err := c.WriteMsgUnix(m, rights, nil); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EMSGSIZE) {
				break // the daemon has closed this connection
			}
			if r.IntN(4) > 0 {
				_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
				_, _ = c.Read(make([]byte, 1000))
			}
		}
		_ = c.Close()
	}
	a.say("done %d", os.Getpid())
	a.next()
	return nil
}

// crowd opens the ordered number of connections, keeps those that stay open, and reports
// how many were refused with a message.
func crowd(a *attacker) error {
	words, _ := a.next()
	var n int
	if _, err := fmt.Sscan(words[0], &n); err != nil {
		return err
	}
	var mu sync.Mutex
	var held []*ipc.Client // open until stdin ends
	turned := 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range n / 4 {
				c, err := ipc.Dial(a.ctx, a.socket)
				if err != nil {
					continue
				}
				// The daemon answers a tool's Hello, unless the connection exceeds the bound.
				_, err = c.Hello(a.ctx, ipc.HelloRequest{Kind: ipc.KindTool})
				mu.Lock()
				if err != nil && strings.Contains(err.Error(), "connections, the most") {
					turned++
				}
				held = append(held, c)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	a.say("turned %d", turned)
	a.next()
	for _, c := range held {
		_ = c.Close()
	}
	return nil
}

// flood sends the messages that cost the daemon most, as fast as possible, until "stop":
// notices, refused requests, and requests for snapshots that it never reads.
func flood(a *attacker) error {
	words, _ := a.next()
	s, slot, err := a.lease(parseUUID(words[0]))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(a.ctx)
	defer stop()
	var wg sync.WaitGroup
	var sent atomic.Int64
	wg.Go(func() {
		for ctx.Err() == nil && s.Main.Freed(slot) == nil {
			sent.Add(1)
		}
	})
	for range 2 {
		wg.Go(func() { pour(ctx, a.socket, &sent, ipc.TypeSnapshot) })
		wg.Go(func() { pour(ctx, a.socket, &sent, ipc.TypeBye) })
	}
	a.say("started %d", os.Getpid())
	a.next()
	stop()
	wg.Wait()
	a.say("sent %d", sent.Load())
	return nil
}

// pour repeats a message without reading answers.
func pour(ctx context.Context, socket string, sent *atomic.Int64, kind ipc.Type) {
	message := ipc.Marshal(nil, ipc.Header{Type: kind, Request: 1}, &ipc.Empty{})
	for ctx.Err() == nil {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
		if err != nil {
			return
		}
		for ctx.Err() == nil {
			_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := c.Write(message); err != nil {
				break
			}
			sent.Add(1)
		}
		_ = c.Close()
	}
}

// TestRubbishOnTheSocket: honest programs are undisturbed while other processes send malformed messages.
func TestRubbishOnTheSocket(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"600M\"\n"})
	honest := cudaprog(m)
	say(t, honest, "alloc a 100M", "ok")
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	var evil []*rig.Program
	for i := range 3 {
		p := start(m, "babbler")
		p.Tell(fmt.Sprintf("%s %d %d", id, *seed*100+uint64(i), 3000**scale))
		evil = append(evil, p)
	}
	var pids []int
	for i, p := range evil {
		honest.Ask(fmt.Sprintf("threads 2 100 100M %d", i+1))
		var pid int
		if _, err := fmt.Sscanf(p.Line(), "done %d", &pid); err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	agree(t, m, pids...)
	if s := m.Snapshot().Stats; s.Malformed < 1000 {
		t.Errorf("%d messages were malformed, of thousands", s.Malformed)
	}
	for _, p := range evil {
		p.CloseStdin()
	}
	rig.Eventually(t, "the babblers' sessions have ended", func() bool { return len(m.Snapshot().Leases) == 1 })
	say(t, honest, "alloc b 500M", "ok")
	say(t, honest, "alloc c 1", "err 2")
	agree(t, m)
}

// TestTenThousandConnections: the daemon accepts as many connections as one process may have, and refuses
// the rest. Other clients are served meanwhile and afterwards.
func TestTenThousandConnections(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	honest := cudaprog(m)
	before := descriptors(t, m)
	evil := start(m, "crowd")
	evil.Tell(fmt.Sprint(10_000 * *scale))
	say(t, honest, "alloc a 100M", "ok")
	agree(t, m)
	var turned int
	if _, err := fmt.Sscanf(evil.Line(), "turned %d", &turned); err != nil || turned < 5000 {
		t.Errorf("%d connections were refused (%v), want most of 10,000", turned, err)
	}
	say(t, honest, "alloc b 100M", "ok")
	evil.CloseStdin()
	rig.Eventually(t, "the connections are closed", func() bool { return descriptors(t, m) <= before+2 })
}

// TestFlood: messages that are sent without a pause, and whose answers are never read, cost other clients only time.
func TestFlood(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	honest := cudaprog(m)
	say(t, honest, "alloc a 100M", "ok")
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	evil := start(m, "flooder")
	evil.Tell(id)
	var pid int
	if _, err := fmt.Sscanf(evil.Line(), "started %d", &pid); err != nil {
		t.Fatal(err)
	}
	for i := range 20 * *scale {
		honest.Ask(fmt.Sprintf("threads 2 50 300M %d", i+1))
		agree(t, m, pid)
	}
	evil.Tell("stop")
	t.Logf("the flooder %s", evil.Line())
	rig.Eventually(t, "the flooder's session has ended", func() bool { return len(m.Snapshot().Leases) == 1 })
	rig.Eventually(t, "no goroutine is left behind", func() bool { return m.Snapshot().Stats.Goroutines < 60 })
}
