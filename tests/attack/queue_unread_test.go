package attack

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that memory, streams, contexts, sessions and jobs are free again if the client to which they were
// granted never reads the reply. A request that is repeated gets its grant once. queue_test.go has the party and the
// raw connection.

// answered waits until data can be read, and does not read it.
func (r *rawConn) answered() {
	r.t.Helper()
	raw, err := r.c.SyscallConn()
	check(r.t, err)
	check(r.t, r.c.SetReadDeadline(time.Now().Add(patience)))
	if err := raw.Read(func(fd uintptr) bool {
		_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR
	}); err != nil {
		r.t.Errorf("not in %v: a reply (%v)", patience, err)
	}
}

// joined returns a raw connection that has joined a party's session.
func (p *party) joined() *rawConn {
	p.t.Helper()
	r := rawClient(p.t, p.m.Socket)
	r.send(ipc.TypeJoin, 1, ipc.JoinRequest{Session: p.s.Hello.Session})
	r.want(1, ipc.StatusOK)
	return r
}

// TestGrantsThatNobodyRead: a grant whose client never reads the reply is taken back. This holds for every kind of grant,
// and whether the client left before or after the reply came.
func TestGrantsThatNobodyRead(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	p := partyOf(t, m, 100*mib)
	agreed(t, m, p)
	before := held(m)
	hello := ipc.HelloRequest{Kind: ipc.KindShim, Memory: ipc.NoLimit, StreamReserve: ipc.NoLimit}
	for name, send := range map[string]func(r *rawConn){
		"bytes": func(r *rawConn) {
			sendBody(r, ipc.TypeAlloc, 2, &ipc.AllocRequest{Slot: p.slot, Kind: ipc.MemoryPlain, Bytes: 300 * mib})
		},
		"streams": func(r *rawConn) { sendBody(r, ipc.TypeStream, 2, &ipc.StreamRequest{Slot: p.slot, Count: 3}) },
		"contexts": func(r *rawConn) {
			sendBody(r, ipc.TypeContext, 2, &ipc.ContextRequest{Slot: p.slot, Count: 1, Flags: ipc.FlagHold})
		},
		"a session": func(r *rawConn) { sendBody(r, ipc.TypeHello, 2, &hello) },
		"a job": func(r *rawConn) {
			sendBody(r, ipc.TypeJobOpen, 2, &ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: 200 * mib})
		},
	} {
		for _, way := range []string{"closes at once", "closes when it is there", "shuts down when it is there"} {
			r := p.joined()
			if name == "a session" || name == "a job" {
				r = rawClient(t, m.Socket)
			}
			send(r)
			if way != "closes at once" {
				r.answered()
			}
			if way == "shuts down when it is there" { // because a forked child may hold the connection open, too
				raw, err := r.c.SyscallConn()
				check(t, err)
				check(t, raw.Control(func(fd uintptr) { check(t, unix.Shutdown(int(fd), unix.SHUT_RDWR)) }))
			} else {
				r.close()
			}
			rig.Eventually(t, name+" go back, "+way, func() bool { return held(m) == before })
		}
	}
	// The daemon may read a request late, after its client has gone.
	rig.Eventually(t, "all grants go back", func() bool { return held(m) == before })
}

// holdings are all sums of the daemon over held memory, streams and slots.
type holdings struct {
	used, committed   accounting.Bytes
	streams, contexts int
	slots             int
	sessions          uint64
	jobs              int
}

func held(m *rig.Machine) (h holdings) {
	s := m.Snapshot()
	for _, l := range s.Leases {
		h.used += l.Used
		h.streams += l.Streams
		h.contexts += l.Contexts
		if l.Slot {
			h.slots++
		}
	}
	h.committed = s.Devices[0].Committed - s.Devices[0].Granted
	h.sessions, h.jobs = s.Stats.Clients, len(s.Jobs)
	return h
}

// TestGrantToldAgain: a request that is repeated on another connection gets its grant again, and
// keeps it when the first connection ends with the answer unread.
func TestGrantToldAgain(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	p := partyOf(t, m, 0)
	request := ipc.AllocRequest{Slot: p.slot, Kind: ipc.MemoryPlain, Bytes: 300 * mib}
	first, second := p.joined(), p.joined()
	sendBody(first, ipc.TypeAlloc, 9, &request)
	first.answered()
	request.Flags = ipc.FlagRetry
	sendBody(second, ipc.TypeAlloc, 9, &request)
	second.want(9, ipc.StatusOK)
	open := descriptors(t, m)
	first.close()
	rig.Eventually(t, "the daemon has closed the connection", func() bool { return descriptors(t, m) < open })
	sendBody(second, ipc.TypeQuery, 10, &ipc.QueryRequest{Device: uuid(m, 0)})
	second.want(10, ipc.StatusOK)
	p.held = request.Bytes
	agreed(t, m, p)
}

// TestAskedAgainAndUnread: a grant was made before a session was resumed, and the client does not report it on resuming.
// It is free then, and a repeated request gets a new grant. If the client does not read that answer, the new grant is taken back,
// too.
func TestAskedAgainAndUnread(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	p := partyOf(t, m, 0)
	for name, send := range map[string]func(r *rawConn){
		"streams": func(r *rawConn) { sendBody(r, ipc.TypeStream, 8, &ipc.StreamRequest{Slot: p.slot, Count: 3}) },
		"contexts": func(r *rawConn) {
			sendBody(r, ipc.TypeContext, 9, &ipc.ContextRequest{Slot: p.slot, Count: 1})
		},
		"holds": func(r *rawConn) {
			sendBody(r, ipc.TypeContext, 9, &ipc.ContextRequest{Slot: p.slot, Count: 1, Flags: ipc.FlagHold})
		},
	} {
		before := held(m)
		ask := func() *rawConn {
			r := p.joined()
			send(r)
			r.answered()
			return r
		}
		ask()
		granted := held(m)
		if granted == before {
			t.Errorf("%s: nothing is counted", name)
		}
		p.resume()
		check(t, p.s.Main.Objects(t.Context(), p.slot))
		if now := held(m); now != before {
			t.Errorf("%s, not named on resume: %+v, want %+v", name, now, before)
		}
		again := ask()
		if now := held(m); now != granted {
			t.Errorf("%s, asked for again: %+v, want %+v", name, now, granted)
		}
		again.close()
		rig.Eventually(t, name+" go back", func() bool { return held(m) == before })
		ask()
		if now := held(m); now != granted {
			t.Errorf("%s, asked for once more: %+v, want %+v", name, now, granted)
		}
		p.resume()
		check(t, p.s.Main.Objects(t.Context(), p.slot))
	}
}
