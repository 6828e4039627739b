package attack

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that honest programs get right answers beside clients that send malformed or arbitrary messages, die
// with open sessions, or stop while they wait. socket_test.go has the generators of the messages.

func init() {
	roles["bomber"] = bomb
	roles["brief"] = brief
	roles["waiter"] = waitForBytes
}

// TestManyMessages is the short form of TestFullMillionMessages.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	besideHonest(t, 15_000, 96)
}

// besideHonest sends arbitrary messages and opens hostile sessions in a process bomb.
// Beside them honest programs run, and every answer that these get is checked.
func besideHonest(t *testing.T, messages, sessions int) {
	m := machine(t, rig.Options{Devices: "16G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Life: time.Hour,
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"600M\"\n"})
	honest := cudaprog(m)
	say(t, honest, "alloc a 100M", "ok")
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	var hostile sync.WaitGroup
	for i := range 3 {
		hostile.Go(func() {
			for n, seed := 0, *seed*1_000_000+uint64(i); n < messages/3; n, seed = n+5000, seed+3 {
				p := start(m, "babbler")
				p.Tell(fmt.Sprintf("%s %d %d", id, seed, min(5000, messages/3-n)))
				p.Line()
				p.CloseStdin()
			}
		})
	}
	hostile.Go(func() {
		for n := 0; n < sessions; n += 96 {
			p := start(m, "bomber")
			p.Tell(fmt.Sprintf("%s %d %d", id, n, 96))
			p.Line()
			p.CloseStdin()
		}
	})
	rounds, over := 0, make(chan struct{})
	go func() {
		defer close(over)
		hostile.Wait()
	}()
	for ended := false; !ended; rounds++ {
		say(t, honest, "alloc b 1M", "ok")
		say(t, honest, "free b", "ok")
		say(t, honest, fmt.Sprint("alloc c ", 500<<20+1), "err 2") // one byte more than its budget has left
		select {
		case <-over:
			ended = true
		default:
		}
	}
	t.Logf("%d messages, %d sessions, %d rounds of the honest program", messages, sessions, rounds)
	rig.Eventually(t, "the hostile sessions have ended", func() bool { return len(m.Snapshot().Processes) == 1 })
	say(t, honest, "alloc d 500M", "ok")
	agree(t, m)
	say(t, honest, "free d", "ok")
	rig.Eventually(t, "no goroutine is left behind", func() bool { return m.Snapshot().Stats.Goroutines < 80 })
}

// bomb starts short-lived clients, many at once, until they have opened SESSIONS sessions
// ("UUID SEED SESSIONS"). Each client opens as many as one process may have.
func bomb(a *attacker) error {
	words, _ := a.next()
	var first, sessions int
	if _, err := fmt.Sscan(words[1]+" "+words[2], &first, &sessions); err != nil {
		return err
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 32)
	for n := 0; n < sessions; n += briefSessions {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"=brief", "BRIEF="+fmt.Sprint(words[0], " ", first+n))
			_ = cmd.Run() // its exit status is irrelevant
		})
	}
	wg.Wait()
	a.say("done %d", os.Getpid())
	a.next()
	return nil
}

// briefSessions is the number of sessions that one process may have.
const briefSessions = 8

// brief opens sessions, misuses each, and dies without closing them.
func brief(a *attacker) error {
	var text string
	var n uint64
	if _, err := fmt.Sscan(os.Getenv("BRIEF"), &text, &n); err != nil {
		return err
	}
	device, r := parseUUID(text), rand.New(rand.NewPCG(n, 1))
	for range briefSessions {
		s, slot, err := a.lease(device)
		if err != nil {
			continue
		}
		for range 4 {
			_, _ = s.Main.Alloc(a.ctx, ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: 1 + r.Uint64N(1<<20), Thread: r.Uint32()})
		}
		_ = s.Page.Guard(func() { s.Page.CreditWord(slot).Store(r.Uint64()) })
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: a.socket, Net: "unixpacket"})
		if err != nil {
			continue
		}
		_, _ = c.Write(ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJoin, Request: 1}, &ipc.JoinRequest{Session: s.Hello.Session}))
		for range r.IntN(20) {
			_, _, _ = c.WriteMsgUnix(request(r, device), unix.UnixRights(0, 1, 2)[:unix.CmsgSpace(4*(1+r.IntN(3)))], nil)
		}
	}
	return unix.Kill(os.Getpid(), unix.SIGKILL)
}

// TestEveryFieldMalformed sends each request with each of its words changed in turn, then a byte too short and
// a byte too long. The daemon may refuse it or close the connection, but must answer the next client.
func TestEveryFieldMalformed(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	honest := cudaprog(m)
	say(t, honest, "alloc a 100M", "ok")
	device := uuid(m, 0)
	hello := ipc.HelloRequest{Kind: ipc.KindShim, Memory: ipc.NoLimit, StreamReserve: ipc.NoLimit}
	messages := map[string][]byte{
		"Hello":    ipc.Marshal(nil, ipc.Header{Type: ipc.TypeHello, Request: 1}, &hello),
		"Join":     ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJoin, Request: 1}, &ipc.JoinRequest{}),
		"Resume":   ipc.Marshal(nil, ipc.Header{Type: ipc.TypeResume, Request: 1}, &ipc.ResumeRequest{Hello: hello, Count: 1, Leases: [ipc.PageSlots]ipc.ResumeLease{{Device: device, Used: 4096}}}),
		"Attach":   ipc.Marshal(nil, ipc.Header{Type: ipc.TypeAttach, Request: 1}, &ipc.AttachRequest{Device: device}),
		"Alloc":    ipc.Marshal(nil, ipc.Header{Type: ipc.TypeAlloc, Request: 1}, &ipc.AllocRequest{Kind: ipc.MemoryPlain, Bytes: 4096}),
		"Freed":    ipc.Marshal(nil, ipc.Header{Type: ipc.TypeFreed, Request: 1}, &ipc.FreedNotice{}),
		"Stream":   ipc.Marshal(nil, ipc.Header{Type: ipc.TypeStream, Request: 1}, &ipc.StreamRequest{Count: 1}),
		"Context":  ipc.Marshal(nil, ipc.Header{Type: ipc.TypeContext, Request: 1}, &ipc.ContextRequest{Count: 1}),
		"Query":    ipc.Marshal(nil, ipc.Header{Type: ipc.TypeQuery, Request: 1}, &ipc.QueryRequest{Device: device}),
		"Room":     ipc.Marshal(nil, ipc.Header{Type: ipc.TypeRoom, Request: 1}, &ipc.RoomRequest{}),
		"Bye":      ipc.Marshal(nil, ipc.Header{Type: ipc.TypeBye, Request: 1}, &ipc.Empty{}),
		"JobOpen":  ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJobOpen, Request: 1}, &ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit, Devices: 1}),
		"JobTally": ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJobTally, Request: 1}, &ipc.JobTallyRequest{}),
		"JobClose": ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJobClose, Request: 1}, &ipc.JobCloseRequest{}),
		"Events":   ipc.Marshal(nil, ipc.Header{Type: ipc.TypeEvents, Request: 1}, &ipc.EventsRequest{}),
		"Snapshot": ipc.Marshal(nil, ipc.Header{Type: ipc.TypeSnapshot, Request: 1}, &ipc.SnapshotRequest{}),
		"Metrics":  ipc.Marshal(nil, ipc.Header{Type: ipc.TypeMetrics, Request: 1}, &ipc.Empty{}),
		"Cancel":   ipc.Marshal(nil, ipc.Header{Type: ipc.TypeCancel, Request: 1}, &ipc.CancelRequest{}),
		"Limit":    ipc.Marshal(nil, ipc.Header{Type: ipc.TypeLimit, Request: 1}, &ipc.LimitRequest{Target: ipc.LimitProcess, ID: uint64(os.Getpid()), Set: ipc.SetMax, Max: 1 << 30}),
		"GiveUp":   ipc.Marshal(nil, ipc.Header{Type: ipc.TypeGiveUp, Request: 1}, &ipc.Empty{}),
	}
	var session ipc.Token
	var sessionOf *ipc.Client
	for name, good := range messages {
		sent := 0
		for _, bad := range malformed(good) {
			if session.IsZero() || sessionOf.Join(t.Context(), session) == nil { // it has ended meanwhile
				session, sessionOf = join(t, m, device)
			}
			c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: m.Socket, Net: "unixpacket"})
			check(t, err)
			if name != "Hello" && name != "Join" && name != "Resume" && name != "JobOpen" {
				_, err = c.Write(ipc.Marshal(nil, ipc.Header{Type: ipc.TypeJoin, Request: 2}, &ipc.JoinRequest{Session: session}))
				check(t, err)
			}
			_, _ = c.Write(bad)
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Microsecond))
			_, _ = c.Read(make([]byte, 4096))
			_ = c.Close()
			if sent++; sent%200 == 0 {
				say(t, honest, "alloc b 1M", "ok")
				say(t, honest, "free b", "ok")
			}
		}
	}
	agree(t, m, os.Getpid())
	say(t, honest, "free a", "ok")
}

// join opens a session with a lease in this process, and returns a token for further connections.
func join(t *testing.T, m *rig.Machine, device ipc.UUID) (ipc.Token, *ipc.Client) {
	t.Helper()
	var token ipc.Token
	var c *ipc.Client
	rig.Eventually(t, "there is room for a session", func() bool {
		var err error
		c, err = ipc.Dial(t.Context(), m.Socket)
		check(t, err)
		s, err := c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit})
		if err != nil {
			_ = c.Close()
			return false
		}
		token = s.Hello.Session
		_, err = c.Attach(t.Context(), device)
		return err == nil
	})
	return token, c
}

// malformed returns copies of a message: each with one word changed, and some with another length.
func malformed(good []byte) (all [][]byte) {
	for at := 0; at+4 <= min(len(good), 400); at += 4 {
		for _, v := range []uint32{0, 1, 1 << 31, 1<<32 - 1} {
			bad := append([]byte(nil), good...)
			binary.LittleEndian.PutUint32(bad[at:], v)
			all = append(all, bad)
		}
	}
	return append(all, good[:len(good)-1], append(append([]byte(nil), good...), 0), good[:ipc.HeaderSize-1])
}

// waitForBytes requests bytes that are not free ("UUID BYTES"), and reports when it has them.
func waitForBytes(a *attacker) error {
	words, _ := a.next()
	var bytes uint64
	if _, err := fmt.Sscan(words[1], &bytes); err != nil {
		return err
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	s, err := c.HelloShim(a.ctx, ipc.HelloRequest{Memory: ipc.NoLimit, OnFull: ipc.OnFullWait})
	if err != nil {
		return err
	}
	at, err := s.Main.Attach(a.ctx, parseUUID(words[0]))
	if err != nil {
		return err
	}
	told := sync.OnceFunc(func() { a.say("waits %d", os.Getpid()) })
	_, err = s.Main.AllocWaiting(a.ctx, ipc.AllocRequest{Slot: at.Slot, Kind: ipc.MemoryPlain, Bytes: bytes},
		ipc.Wait{OnNotice: func(ipc.WaitingReply) { told() }})
	a.say("has %v", err == nil)
	a.next()
	return err
}

// TestStoppedAtTheHead: a client that is stopped while it is first in the queue is served like
// any other, and does not delay the clients behind it.
func TestStoppedAtTheHead(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}})
	holder := cudaprog(m)
	say(t, holder, "alloc a 500M", "ok")
	say(t, holder, "alloc b 523M", "ok")
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	var waiters []*rig.Program
	var pids []int
	for range 4 {
		p := start(m, "waiter")
		p.Tell(fmt.Sprint(id, " ", 100<<20))
		var pid int
		if _, err := fmt.Sscanf(p.Line(), "waits %d", &pid); err != nil {
			t.Fatal(err)
		}
		waiters, pids = append(waiters, p), append(pids, pid)
	}
	for _, pid := range pids[:3] {
		check(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	say(t, holder, "free a", "ok")
	if got := waiters[3].Line(); got != "has true" { // those before it in the queue do not finish
		t.Errorf("the last one: %s", got)
	}
	for i, pid := range pids[:3] {
		check(t, syscall.Kill(pid, syscall.SIGCONT))
		if got := waiters[i].Line(); got != "has true" {
			t.Errorf("number %d: %s", i, got)
		}
	}
	for _, p := range waiters {
		p.CloseStdin()
	}
	rig.Eventually(t, "the hostile leases have ended", func() bool { return len(m.Snapshot().Leases) == 1 })
	agree(t, m)
}
