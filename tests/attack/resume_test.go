package attack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a client which sends Resume in any state of its sessions and jobs takes no memory or
// reservation of another client. token_test.go has clients that resume with the token of another client.

func init() { roles["resumer"] = resumer }

// resumer is an attacker that opens jobs and sessions and sends Resume in each of their states. Each command opens a
// connection, which stays open. "job MIN WAITMILLIS" opens a job, "open JOB" a session, "wait JOB" a session that waits
// for its reservation. "waited" waits for the end of that wait, and "giveup" gives it up. "resume JOB UUID USED" resumes under a new
// token, "own UUID USED" under the token of the last opened session, and "bye" ends that session.
func resumer(a *attacker) error {
	var open *ipc.ShimSession
	waits, giveUp := context.WithCancel(a.ctx)
	defer giveUp()
	waited := make(chan error, 1)
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
		case "job":
			var token ipc.Token
			token, err = a.openPerProcess(c, words[1:])
			if err == nil {
				a.say("job %s %x", words[1], [16]byte(token))
				continue
			}
		case "open":
			open, err = c.HelloShim(a.ctx, helloIn(words[1]))
		case "wait":
			told := make(chan struct{}, 64)
			go func() {
				_, err := c.HelloShimWaiting(waits, helloIn(words[1]), ipc.Wait{OnNotice: func(ipc.WaitingReply) { told <- struct{}{} }})
				waited <- err
			}()
			<-told
		case "giveup":
			giveUp()
		case "waited":
			err = <-waited
		case "resume":
			err = a.resumeIn(ipc.NewToken(), helloIn(words[1]), words[2:])
		case "own":
			err = a.resumeIn(open.Hello.Session, helloIn(""), words[1:])
		case "bye":
			err = open.Main.Bye(a.ctx)
		}
		if err == nil {
			err = errors.New("ok")
		}
		a.say("%s %s %v", words[0], strings.Join(words[1:min(2, len(words))], ""), err)
	}
}

// helloIn returns the Hello of a process in a job, or in no job if job is "".
func helloIn(job string) ipc.HelloRequest {
	h := ipc.HelloRequest{Kind: ipc.KindShim, Memory: ipc.NoLimit, StreamReserve: ipc.NoLimit}
	_, _ = hex.Decode(h.Job[:], []byte(job))
	return h
}

// openPerProcess opens a job whose processes each reserve the bytes in words[0], and wait at most the milliseconds in words[1].
func (a *attacker) openPerProcess(c *ipc.Client, words []string) (ipc.Token, error) {
	var r ipc.JobOpenRequest
	if _, err := fmt.Sscan(strings.Join(words, " "), &r.Min, &r.WaitMillis); err != nil {
		return ipc.Token{}, err
	}
	r.Memory, r.Flags = ipc.NoLimit, ipc.JobPerProcess
	job, err := c.OpenJob(a.ctx, r)
	return job.Job, err
}

// resumeIn sends a Resume that reports one lease, on the device words[0] with words[1] bytes in use.
func (a *attacker) resumeIn(session ipc.Token, hello ipc.HelloRequest, words []string) error {
	used, err := strconv.ParseUint(words[1], 10, 64)
	if err != nil {
		return err
	}
	return resumeWith(a.socket, session, hello, -1, []ipc.ResumeLease{{Device: parseUUID(words[0]), Used: used}})
}

// TestResumeAtEveryState checks that a Resume harms no other process, whatever the state of the sender's sessions and
// jobs: a session either waits or has leases, and reservations of other jobs stay.
func TestResumeAtEveryState(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\ncontext_reserve = \"0\"\nwait_timeout = \"max\"\n"})
	holder := start(m, "resumer", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
	job := holder.Ask(fmt.Sprintf("job %d 600000", 600*mib))
	hasty := holder.Ask(fmt.Sprintf("job %d 200", 600*mib))
	say(t, holder, "open "+job, "ok")
	resume := fmt.Sprintf("resume %s %x 4096", job, [16]byte(uuid(m, 0)))
	own := fmt.Sprintf("own %x 4096", [16]byte(uuid(m, 0)))
	for _, state := range []struct{ name, before, after, answer string }{
		{"no session", "", "", ""},
		{"a session waits, and its process ends", "wait " + job, "", ""},
		{"a session waits, and gives up", "wait " + job, "giveup", "ok"},
		{"a session waits until its time is over", "wait " + hasty, "waited", "as long as it may"},
		{"a session is open", "open " + strings.Repeat("0", 32), own, "ok"},
		{"a session has ended", "open " + strings.Repeat("0", 32), "bye", "ok"},
		{"it resumed before", resume, resume, "ok"},
		{"it resumed in no job", strings.Replace(resume, job, strings.Repeat("0", 32), 1), resume, "ok"},
		{"it resumed in a job that is not there", strings.Replace(resume, job, strings.Repeat("f", 32), 1), resume, "ok"},
	} {
		p := start(m, "resumer", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
		pid := p.PID()
		if state.before != "" {
			say(t, p, state.before, "ok")
		}
		say(t, p, resume, "ok")
		if l := m.Lease(pid, 0); l.Used != 4096 || l.Min != 0 {
			t.Errorf("%s: the lease of a process that resumes: %+v", state.name, l)
		}
		if state.after != "" {
			if got := p.Ask(state.after); !strings.Contains(got, state.answer) {
				t.Errorf("%s: %s: %s, want something with %q", state.name, state.after, got, state.answer)
			}
		}
		sane(t, m)
		if d := m.Snapshot().Devices[0]; d.Committed > d.Capacity {
			t.Errorf("%s: %d bytes are promised of %d", state.name, d.Committed, d.Capacity)
		}
		p.End()
		rig.Eventually(t, state.name+": it has ended", func() bool {
			s := m.Snapshot()
			return len(s.Leases) == 0 && len(s.Queue) == 0 && len(s.Processes) == 1
		})
	}
}

// TestResumedWithoutReservation loses the state file, and lets another job reserve the bytes that were a program's
// memory.min. The program goes on without its reservation, also with the next daemon, and gets it back
// as soon as it fits.
func TestResumedWithoutReservation(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"}, Config: "schema_version = 1\n" +
		"[defaults]\ncontext_reserve = \"0\"\n[[rule]]\nmatch.exe = \"*cudaprog*\"\nscope = \"process\"\nmemory.min = \"600M\"\n"})
	p := cudaprog(m)
	pid := p.PID()
	say(t, p, "alloc a 100M", "ok")
	if l := m.Lease(pid, 0); l.Min != 600*mib {
		t.Fatalf("it reserves nothing: %+v", l)
	}
	p.Signal(syscall.SIGSTOP)
	m.Kill()
	check(t, os.Remove(m.Socket+".state"))
	m.Start()
	other := start(m, "resumer")
	say(t, other, "open "+other.Ask(fmt.Sprintf("job %d 600000", 700*mib)), "ok")
	p.Signal(syscall.SIGCONT)
	for _, when := range []string{"at once", "with the next daemon"} {
		say(t, p, "alloc b 10M", "ok")
		m.AwaitLog("it goes on without")
		if l := m.Lease(pid, 0); l.Min != 0 || l.Used != 110*mib {
			t.Errorf("%s: its lease: %+v", when, l)
		}
		say(t, p, "free b", "ok")
		sane(t, m)
		m.Kill()
		m.Start()
	}
	other.End()
	rig.Eventually(t, "the program has its memory.min again", func() bool { return m.Lease(pid, 0).Min == 600*mib })
	if d := m.Snapshot().Devices[0]; d.Committed != 600*mib {
		t.Errorf("%d bytes are promised", d.Committed)
	}
	m.Kill()
	m.Start()
	if l := m.Lease(pid, 0); l.Min != 600*mib {
		t.Errorf("with a daemon after that: %+v", l)
	}
	agree(t, m)
}
