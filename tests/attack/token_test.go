package attack

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/ipc"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that a client gains nothing by the token, the connection or the lease page of another process, or by
// false figures in a Resume. resume_test.go has clients that resume honestly in unusual states.

func init() {
	roles["thief"] = steal
}

// steal obeys orders to misuse a token of another job: "join TOKEN", "resume TOKEN UUID BYTES STREAMS", "page TOKEN"
// (with a lease page that it made itself), "job TOKEN". It answers with the daemon's error, or "taken". "open TOKEN"
// ignores the token, opens a job and answers with the token of that job.
func steal(a *attacker) error {
	for {
		words, ok := a.next()
		if !ok {
			return nil
		}
		var token ipc.Token
		if _, err := hex.Decode(token[:], []byte(words[1])); err != nil {
			return err
		}
		if words[0] == "open" {
			if token, err := a.openJob(); err == nil {
				a.say("%x", [16]byte(token))
				continue
			}
		}
		if err := a.misuse(words, token); err == nil {
			a.say("taken")
		} else {
			a.say("%v", err)
		}
	}
}

// openJob opens a job on a connection that stays open.
func (a *attacker) openJob() (ipc.Token, error) {
	c, err := a.dial()
	if err != nil {
		return ipc.Token{}, err
	}
	job, err := c.OpenJob(a.ctx, ipc.JobOpenRequest{Memory: ipc.NoLimit})
	return job.Job, err
}

func (a *attacker) misuse(words []string, token ipc.Token) error {
	switch words[0] {
	case "page":
		page, err := ipc.NewPage()
		if err != nil {
			return err
		}
		return resumeAs(a.socket, token, page.FD(), nil)
	case "resume":
		claim := ipc.ResumeLease{Device: parseUUID(words[2])}
		if _, err := fmt.Sscan(words[3]+" "+words[4], &claim.Used, &claim.Streams); err != nil {
			return err
		}
		return resumeAs(a.socket, token, -1, []ipc.ResumeLease{claim})
	}
	c, err := a.dial()
	if err != nil {
		return err
	}
	if words[0] == "join" {
		return c.Join(a.ctx, token)
	}
	_, err = c.HelloShim(a.ctx, ipc.HelloRequest{Job: token, Memory: ipc.NoLimit})
	return err
}

// resumeAs sends a Resume with the given token and page (−1: none) on a connection of its
// own, which stays open. It returns the daemon's error.
func resumeAs(socket string, token ipc.Token, page int, leases []ipc.ResumeLease) error {
	return resumeWith(socket, token, helloIn(""), page, leases)
}

// resumeWith does what resumeAs does, with a Hello that may name a job.
func resumeWith(socket string, token ipc.Token, hello ipc.HelloRequest, page int, leases []ipc.ResumeLease) error {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		return err
	}
	req := ipc.ResumeRequest{Session: token, Count: uint32(len(leases)), Hello: hello}
	copy(req.Leases[:], leases)
	var rights []byte
	if page >= 0 {
		req.HasPage, rights = 1, unix.UnixRights(page)
	}
	if _, _, err := c.WriteMsgUnix(ipc.Marshal(nil, ipc.Header{Type: ipc.TypeResume, Request: 1 << 40}, &req), rights, nil); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, err := c.Read(reply)
	if err != nil {
		return err
	}
	h, body, err := ipc.ParseReply(reply[:n], n)
	if err != nil || !h.Status.IsError() {
		return err
	}
	return errors.New(string(body))
}

// shimOf opens a session of this process with a lease of the given bytes.
func shimOf(t *testing.T, m *rig.Machine, bytes uint64) (*ipc.ShimSession, uint32) {
	t.Helper()
	a := &attacker{ctx: t.Context(), socket: m.Socket}
	s, slot, err := a.lease(uuid(m, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if bytes > 0 {
		if _, err := s.Main.Alloc(t.Context(), ipc.AllocRequest{Slot: slot, Kind: ipc.MemoryPlain, Bytes: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	return s, slot
}

// TestStolenTokens: a token is worthless in another process.
func TestStolenTokens(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	s, _ := shimOf(t, m, 100<<20)
	c, err := ipc.Dial(t.Context(), m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	job, err := c.OpenJob(t.Context(), ipc.JobOpenRequest{Memory: 200 << 20})
	if err != nil {
		t.Fatal(err)
	}
	as := func(uid int) *rig.Program {
		return start(m, "thief", "setpriv", fmt.Sprint("--reuid=", uid), "--clear-groups")
	}
	thief, nobody, daemon := start(m, "thief"), as(65534), as(1)
	daemon.Tell("open " + strings.Repeat("0", 32))
	var theirs ipc.Token
	if _, err := hex.Decode(theirs[:], []byte(daemon.Line())); err != nil {
		t.Fatal(err)
	}
	token, id := fmt.Sprintf("%x", [16]byte(s.Hello.Session)), fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	for _, c := range []struct {
		who  *rig.Program
		what string
		says string
	}{
		{thief, "join " + token, "belongs to process"},
		{thief, "resume " + token + " " + id + " 0 0", "belongs to process"},
		{thief, "page " + token, "belongs to process"},
		{thief, "job " + token, "names no job"},
		{nobody, "join " + token, "belongs to process"},
		{nobody, fmt.Sprintf("job %x", [16]byte(theirs)), "names a job of user 1, this is user 65534"},
		{nobody, fmt.Sprintf("job %x", [16]byte(job.Job)), "taken"}, // root may start programs as another user
	} {
		c.who.Tell(c.what)
		if got := c.who.Line(); !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want something with %q", c.what, got, c.says)
		}
	}
	if l := m.Lease(os.Getpid(), 0); l.Granted < 100<<20 || l.Used != 100<<20 {
		t.Errorf("the owner's lease: %+v", l)
	}
}

// TestClaimsOnResume: memory that a client reports when it resumes is limited like requested memory.
func TestClaimsOnResume(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"600M\"\n"})
	honest := cudaprog(m)
	say(t, honest, "alloc a 500M", "ok")
	thief := start(m, "thief")
	id := fmt.Sprintf("%x", [16]byte(uuid(m, 0)))
	for i, used := range []uint64{1 << 63, 1<<48 - 1, 1 << 40, 600 << 20, 1} {
		thief.Tell(fmt.Sprintf("resume %032x %s %d 0", i+1, id, used))
		if got := thief.Line(); (got == "taken") != (used < 1<<48) {
			t.Errorf("a claim of %d bytes: %s", used, got)
		}
		sane(t, m)
	}
	say(t, honest, "alloc b 20M", honest.Ask("alloc b 20M")) // the false report took no memory from the honest program
	agree(t, m, thief.PID())
}

// TestStreamsClaimedOnResume: streams that a client reports when it resumes are charged to its own
// budget only. Other clients can have as much as before.
func TestStreamsClaimedOnResume(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true, Sim: []string{"SIMCUDA_CONTEXT_BYTES=0"},
		Config: "schema_version = 1\n[defaults]\nmemory.max = \"500M\"\nstream_reserve = \"12M\"\n[[device]]\ncontext_reserve = \"0\"\n"})
	honest := cudaprog(m)
	say(t, honest, "alloc a 480M", "ok")
	thief := start(m, "thief")
	thief.Tell(fmt.Sprintf("resume %032x %x 0 %d", 1, [16]byte(uuid(m, 0)), 1<<20))
	if got := thief.Line(); got != "taken" {
		t.Fatal(got)
	}
	for _, when := range []string{"at once", "after a restart"} {
		if l := m.Lease(thief.PID(), 0); l.Streams != 41 { // 41 streams of 12 MiB are 492 MiB: one more would exceed the 500 MiB
			t.Errorf("%s: %d streams", when, l.Streams)
		}
		say(t, honest, "alloc b 20M", "ok")
		say(t, honest, "free b", "ok")
		m.Kill()
		m.Start()
	}
	agree(t, m, thief.PID())
}

// TestResumeTwice: resuming twice gives the same session, and no bytes count twice. A page that
// the daemon did not make does not replace the page that it knows.
func TestResumeTwice(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	s, slot := shimOf(t, m, 100<<20)
	held := []ipc.ResumeLease{{Device: uuid(m, 0), Used: 100 << 20, Slot: slot}}
	resume := func() {
		t.Helper()
		c, err := ipc.Dial(t.Context(), m.Socket)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(t.Context(), c, held); err != nil {
			t.Fatal(err)
		}
		if l := m.Lease(os.Getpid(), 0); l.Used != 100<<20 {
			t.Errorf("%d bytes used after it resumed", l.Used)
		}
	}
	resume()
	resume()
	m.Kill()
	m.Start()
	forged, err := ipc.NewPage()
	if err != nil {
		t.Fatal(err)
	}
	defer forged.Close()
	forged.GiveCredit(slot, 1<<40)
	if err := resumeAs(m.Socket, s.Hello.Session, forged.FD(), held); err != nil {
		t.Error(err)
	}
	if l := m.Lease(os.Getpid(), 0); l.Used != 100<<20 || l.Credit > 100<<20 || m.Snapshot().Stats.ClampedWords != 0 {
		t.Errorf("the daemon accepted a forged lease page: %+v", l)
	}
	if n := len(m.Snapshot().Leases); n != 1 {
		t.Errorf("%d leases, want one", n)
	}
}

// TestInheritedConnection: a child may use its parent's connection while the parent lives, because
// the kernel reports the parent as the peer. After the parent's death the connection is worthless.
func TestInheritedConnection(t *testing.T) {
	t.Parallel()
	m := machine(t, rig.Options{Devices: "1G", NoMount: true})
	p := m.Interact(m.Command(m.Env(), "/usr/bin/python3", "testdata/heir.py", m.Socket, fmt.Sprintf("%x", [16]byte(uuid(m, 0)))))
	var parent, child int
	if _, err := fmt.Sscan(p.Line(), &parent, &child); err != nil {
		t.Fatal(err)
	}
	p.Tell("speak")
	if got := p.Line(); got != "0" || m.Lease(parent, 0).Used != 200<<20 {
		t.Errorf("the child's request: %s, %+v", got, m.Lease(parent, 0))
	}
	if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
	p.Tell("speak")
	if got := p.Line(); got == "0" {
		t.Error("a dead process was granted memory")
	}
	sane(t, m)
	if s := m.Snapshot(); len(s.Leases) != 0 || len(s.Processes) != 0 {
		t.Errorf("leases or memory appeared again: %+v", s)
	}
}
