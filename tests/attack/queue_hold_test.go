package attack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/statefile"
	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that slots, exclusive devices and limits of host memory survive a restart of the daemon, and that a
// client can cancel or overtake no request of another client. queue_test.go has the party and the order of the queue.

// context requests a context for a thread, on a connection of its own.
func (p *party) context(thread uint32, number uint64, flags uint32) *asked {
	r := &asked{p: p, number: number, waits: make(chan ipc.WaitingReply, 1), done: make(chan error, 1)}
	go func() {
		ctx := p.t.Context()
		c, err := ipc.Dial(ctx, p.m.Socket)
		if err == nil {
			defer c.Close()
			err = p.s.Join(ctx, c)
		}
		if err == nil {
			err = ipc.CallWaiting(ctx, c, ipc.TypeContext, &ipc.ContextRequest{Slot: p.slot, Count: 1, Thread: thread, Flags: flags},
				&ipc.ContextReply{}, ipc.Wait{Request: number, OnNotice: r.told})
		}
		close(r.waits)
		r.done <- err
	}()
	return r
}

// TestSlotsOutliveTheDaemon: with the next daemon every holder still has its slot, and requests
// still wait for one. This holds for slots of jobs, processes and threads.
func TestSlotsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"job", "process", "thread"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: "schema_version = 1\n[defaults]\n" +
				"slots.max = 1\nwait_timeout = \"max\"\ndeadlock_grace = \"10m\"\nslots.scope = \"" + scope + "\"\n"})
			a, b := partyOf(t, m, 0), partyOf(t, m, 0)
			a.s.Page.Threads().Store(3)
			check(t, a.context(1, ipc.NewRequest(), 0).end())
			if scope == "thread" { // another thread of the same process is another holder
				b = a
			}
			r := b.context(2, ipc.NewRequest(), 0)
			r.parked()
			m.Kill()
			_ = r.end()
			m.Start()
			a.resume()
			if b != a {
				b.resume()
			}
			r = b.context(2, r.number, ipc.FlagRetry)
			r.parked()
			if err := ipc.CallWaiting(t.Context(), a.s.Main, ipc.TypeContext, &ipc.ContextRequest{Slot: a.slot, Count: -1, Thread: 1},
				&ipc.ContextReply{}, ipc.Wait{}); err != nil {
				t.Fatal(err)
			}
			if err := r.end(); err != nil {
				t.Errorf("%v", err)
			}
			if n := m.Lease(os.Getpid(), 0).Contexts; n != 1 && scope == "thread" {
				t.Errorf("%d contexts, want 1", n)
			}
		})
	}
}

// TestExclusiveOutlivesTheDaemon: an exclusive device stays exclusive when the daemon is restarted.
func TestExclusiveOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: "schema_version = 1\n[defaults]\nwait_timeout = \"max\"\ndeadlock_grace = \"10m\"\n"})
	c, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	defer c.Close()
	alone, err := c.Claim(t.Context(), ipc.ClaimRequest{Exclusive: true})
	check(t, err)
	other := partyOf(t, m, 0)
	r := other.context(1, ipc.NewRequest(), 0)
	r.parked()
	inside, err := c.HelloShim(t.Context(), ipc.HelloRequest{Memory: ipc.NoLimit, Job: alone.Job, StreamReserve: ipc.NoLimit})
	check(t, err)
	at, err := inside.Main.Attach(t.Context(), uuid(m, 0))
	check(t, err)
	if _, err := inside.Main.Context(t.Context(), at.Slot, 1); err != nil {
		t.Errorf("inside the job: %v", err)
	}
	m.Kill()
	_ = r.end()
	heldSince(t, m, 1) // as if the job held its slot since one second after boot: a time without milliseconds
	m.Start()
	other.resume()
	r = other.context(1, r.number, ipc.FlagRetry)
	notice := r.parked()
	if said := notice.Text.String(); !strings.Contains(said, "held alone (--exclusive) by ") || strings.Contains(said, " ms") {
		t.Errorf("the waiting client is told %q", said)
	}
	again, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	check(t, inside.Resume(t.Context(), again, []ipc.ResumeLease{{Device: uuid(m, 0), Slot: at.Slot, Contexts: 1}}))
	if _, err := inside.Main.Context(t.Context(), at.Slot, 1); err != nil {
		t.Errorf("inside the job, with the next daemon: %v", err)
	}
	check(t, inside.Main.Bye(t.Context()))
	check(t, alone.Release(t.Context()))
	if err := r.end(); err != nil {
		t.Errorf("when the device is free: %v", err)
	}
}

// heldSince changes the time in the state file at which a job got its slot. It fails the test if the daemon had not recorded that time.
func heldSince(t *testing.T, m *rig.Machine, second uint32) {
	t.Helper()
	f, _, err := statefile.Open(m.Socket + ".state")
	check(t, err)
	jobs := 0
	f.Jobs.Each(func(_ int, j *statefile.Job) {
		jobs++
		if j.HeldSince == 0 {
			t.Errorf("job %d: the state file has no time since which it holds its slot", j.ID)
		}
		j.HeldSince = second
	})
	check(t, f.Close())
	if jobs != 1 {
		t.Errorf("the state file has %d jobs", jobs)
	}
}

func init() { roles["rival"] = rival }

// rival tries operations that only an owner or root may do: "cancel TICKET", "close TOKEN", "urgent".
func rival(a *attacker) error {
	for {
		words, ok := a.next()
		if !ok {
			return nil
		}
		c, err := a.dial()
		if err != nil {
			return err
		}
		switch words[0] {
		case "cancel":
			var ticket uint64
			if _, err = fmt.Sscan(words[1], &ticket); err == nil {
				_, err = c.Cancel(a.ctx, ipc.CancelRequest{Ticket: ticket})
			}
		case "close":
			var token ipc.Token
			if _, err = hex.Decode(token[:], []byte(words[1])); err == nil {
				err = c.CloseJob(a.ctx, token)
			}
		case "urgent":
			_, err = c.OpenJob(a.ctx, ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit, Priority: 1})
		}
		a.say("%s %v", words[0], err)
		c.Close()
	}
}

// TestRivals: a client cannot cancel, close or overtake the requests of another client.
func TestRivals(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Config: waiting})
	a, b := partyOf(t, m, 900*mib), partyOf(t, m, 0)
	c, err := ipc.Dial(t.Context(), m.Socket)
	check(t, err)
	defer c.Close()
	job, err := c.OpenJob(t.Context(), ipc.JobOpenRequest{Memory: ipc.NoLimit, Min: ipc.NoLimit})
	check(t, err)
	r := b.ask(t.Context(), 300*mib)
	notice := r.parked()
	p := start(m, "rival", "setpriv", "--reuid=65534", "--clear-groups")
	for command, want := range map[string]string{
		fmt.Sprintf("cancel %d", notice.Ticket):         "is user 0's: only that user or root may cancel it",
		fmt.Sprintf("close %x", [16]byte(job.Job)):      "is user 0's, this is user 65534",
		"close " + strings.Repeat("0", 32):              "no job",
		"urgent":                                        "only root",
		fmt.Sprintf("cancel %d", notice.Ticket+100_000): "no request waits",
	} {
		p.Tell(command)
		if got := p.Line(); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want something with %q", command, got, want)
		}
	}
	a.free(300 * mib)
	r.granted()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.Cancel(ctx, ipc.CancelRequest{Job: ipc.NewToken()}); !errors.Is(err, ipc.StatusNoSession) {
		t.Errorf("closing a job that does not exist: %v", err)
	}
	agreed(t, m, a, b)
}

// TestHostMaxIsTold: a process gets the limit of pinned host memory of its
// rule, and gets it again when it resumes.
func TestHostMaxIsTold(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	check(t, err)
	m := machine(t, rig.Options{Devices: "1G", NoMount: true,
		Config: fmt.Sprintf("schema_version = 1\n[[rule]]\nmatch.exe = %q\nhost.max = \"64MiB\"\n", filepath.Base(self))})
	a := partyOf(t, m, 0)
	if got := a.s.Hello.HostMax; got != 64*mib {
		t.Errorf("told %d bytes", got)
	}
	m.Kill()
	m.Start()
	a.resume()
	if got := a.s.Hello.HostMax; got != 64*mib {
		t.Errorf("told %d bytes by the next daemon", got)
	}
	other := machine(t, rig.Options{Devices: "1G", NoMount: true})
	if got := partyOf(t, other, 0).s.Hello.HostMax; got != ipc.NoLimit {
		t.Errorf("without a limit, told %d bytes", got)
	}
}
