package attack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a waiting request can end in any way, also when its session or the daemon ends, and leaves
// neither a place in the queue nor memory behind. queue_test.go has the party and the order of the queue.

// stormy is a party that requests memory, waits, gives up in every possible way, and frees. Several goroutines of a
// test use one stormy, each with one request at a time.
type stormy struct {
	*party
	mu sync.Mutex
}

// round makes one request and ends it in a random way.
func (p *stormy) round(r *rand.Rand) error {
	bytes := uint64(1+r.IntN(300)) * mib
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if r.IntN(4) == 0 {
		return p.walkAway(ctx, r, bytes)
	}
	told := func(ipc.WaitingReply) {}
	switch r.IntN(4) {
	case 0: // gives up as soon as the request waits
		told = func(ipc.WaitingReply) { cancel() }
	case 1: // gives up at a random moment
		time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
	}
	c, err := ipc.Dial(ctx, p.m.Socket)
	if err != nil {
		return ending(ctx, err)
	}
	defer c.Close()
	if err := p.s.Join(ctx, c); err != nil {
		return ending(ctx, err)
	}
	_, err = c.AllocWaiting(ctx, ipc.AllocRequest{Slot: p.slot, Kind: ipc.MemoryPlain, Bytes: bytes}, ipc.Wait{OnNotice: told})
	if err != nil {
		return ending(ctx, err)
	}
	if p.s.Page.GiveCredit(p.slot, bytes).Notify() {
		return p.s.Main.Freed(p.slot)
	}
	return nil
}

// walkAway sends a request and closes the connection without reading the answer.
func (p *stormy) walkAway(ctx context.Context, r *rand.Rand, bytes uint64) error {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: p.m.Socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	defer c.Close()
	buffer := make([]byte, ipc.MaxReply)
	join := ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJoin, Request: ipc.NewRequest()}, &ipc.JoinRequest{Session: p.s.Hello.Session})
	if _, err := c.Write(join); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Read(buffer); err != nil {
		return err
	}
	// If the request does not fit, this closes the connection while it waits, or at the moment when it is served.
	p.mu.Lock()
	defer p.mu.Unlock()
	ask := ipc.Marshal(nil, ipc.Header{Type: ipc.TypeAlloc, Request: ipc.NewRequest()},
		&ipc.AllocRequest{Slot: p.slot, Kind: ipc.MemoryPlain, Bytes: bytes})
	if _, err := c.Write(ask); err != nil {
		return err
	}
	n, err := c.Read(buffer)
	if err != nil {
		return err
	}
	h, _, err := ipc.ParseReply(buffer[:n], n)
	if err != nil {
		return err
	}
	if h.Status == ipc.StatusOK { // it did not wait
		p.s.Page.GiveCredit(p.slot, bytes)
		return p.s.Main.Freed(p.slot)
	}
	pause(time.Duration(r.IntN(2000)) * time.Microsecond)
	return ctx.Err()
}

// ending drops the errors that a storm expects: a cancelled context,
// and the refusal of a client that would wait for itself.
func ending(ctx context.Context, err error) error {
	if errors.Is(err, ipc.StatusDeviceFull) || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// TestQueueStorm: waiting requests end in all possible ways. Afterwards the queue is empty, nothing
// is held, and the whole device can be allocated.
func TestQueueStorm(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	const parties, lanes, rounds = 7, 4, 40
	var wg sync.WaitGroup
	for n := range parties {
		p := &stormy{party: partyOf(t, m, 0)}
		p.s.Page.Threads().Store(100)
		for lane := range lanes {
			r := rand.New(rand.NewPCG(*seed, uint64(n*lanes+lane)))
			wg.Go(func() {
				for range rounds * *scale {
					if err := p.round(r); err != nil {
						t.Errorf("party %d: %v", n, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	rig.Eventually(t, "no request waits and nothing is held", func() bool {
		s := m.Snapshot()
		var used accounting.Bytes
		for _, l := range s.Leases {
			used += l.Used
		}
		return len(s.Queue) == 0 && used == 0
	})
	all := partyOf(t, m, 0)
	all.ask(t.Context(), 1000*mib).granted()
}

// TestSessionsEndWhileTheyWait: when a session ends in any way, its requests leave the queue,
// and the memory meant for them goes to the next requests.
func TestSessionsEndWhileTheyWait(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	a, next := partyOf(t, m, 900*mib), partyOf(t, m, 0)
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	for _, how := range []string{"bye", "death", "resume"} {
		p := partyOf(t, m, 0)
		var r *asked
		var dies *rig.Program
		if how == "death" {
			dies = start(m, "queue")
			if got := dies.Ask(fmt.Sprintf("wait %s 9 %d", id, 150*mib)); got != "ok" {
				t.Fatal(got)
			}
		} else {
			r = p.ask(t.Context(), 600*mib)
			r.parked()
		}
		after := next.ask(t.Context(), 50*mib)
		switch how {
		case "bye":
			check(t, p.s.Main.Bye(t.Context()))
		case "death":
			dies.Signal(9)
		case "resume": // the request is repeated on a connection of the resumed session
			after.parked()
			p.resume()
			if err := r.end(); !errors.Is(err, ipc.StatusNoSession) {
				t.Errorf("on a connection from before: %v", err)
			}
			r = r.again()
			r.parked()
			r.p.t.Logf("queue: %d", queueLength(m))
			a.free(700 * mib)
			r.granted()
			r.p.free(600 * mib)
			a.ask(t.Context(), 700*mib).granted()
		}
		after.granted()
		next.free(50 * mib)
		if r != nil && how != "resume" {
			if err := r.end(); err == nil {
				t.Errorf("%s: granted", how)
			}
		}
	}
	rig.Eventually(t, "no request waits", func() bool { return queueLength(m) == 0 })
	agreed(t, m, a, next)
}

// TestReservationsWait: a session whose memory.min does not fit waits for it before it
// begins. It can give up, and the daemon can be killed meanwhile.
func TestReservationsWait(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true,
		Config: "schema_version = 1\n[defaults]\nmemory.min = \"600M\"\nwait_timeout = \"max\"\n"})
	a := partyOf(t, m, 0)
	hello := func(ctx context.Context) (chan ipc.WaitingReply, chan *ipc.ShimSession, chan error) {
		waits, got, failed := make(chan ipc.WaitingReply, 100), make(chan *ipc.ShimSession, 1), make(chan error, 1)
		c, err := ipc.Dial(ctx, m.Socket)
		check(t, err)
		go func() {
			s, err := c.HelloShimWaiting(ctx, ipc.HelloRequest{Memory: ipc.NoLimit}, ipc.Wait{OnNotice: func(n ipc.WaitingReply) {
				select {
				case waits <- n:
				default:
				}
			}})
			if err != nil {
				c.Close()
				failed <- err
				return
			}
			got <- s
		}()
		return waits, got, failed
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits, _, failed := hello(ctx)
	within(t, "the first is told that it waits", waits)
	cancel()
	if err := within(t, "the first gives up", failed); !errors.Is(err, context.Canceled) && !errors.Is(err, ipc.StatusPermission) {
		t.Errorf("%v", err)
	}
	rig.Eventually(t, "no request waits", func() bool { return queueLength(m) == 0 })
	waits, _, failed = hello(t.Context())
	within(t, "the second is told that it waits", waits)
	m.Kill()
	within(t, "the second loses the daemon", failed)
	m.Start()
	a.resume()
	waits, got, failed := hello(t.Context())
	within(t, "it is told again that it waits", waits)
	if n := len(m.Snapshot().Processes); n > 2 {
		t.Errorf("%d processes: a process that only waited was resumed", n)
	}
	check(t, a.s.Main.Bye(t.Context()))
	select {
	case s := <-got:
		check(t, s.Close())
	case err := <-failed:
		t.Error(err)
	case <-time.After(patience):
		t.Error("the reservation that has room is not made")
	}
}

// within receives from a channel, and fails the test if no value comes.
func within[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("not in %v: %s", patience, what)
	}
	panic("unreachable")
}
