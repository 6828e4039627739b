package cshimtest

import (
	"fmt"
	"strings"
	"testing"
)

// This file shows what a program with many threads sees while its requests wait: messages, answers to other
// threads, restarts of the daemon, and slots. session_test.go has requests that do not wait.

// job is a token; a program that has it runs as under gpuarb run.
var job = "GPUARB_JOB=" + strings.Repeat("0f", 16)

// startTeam starts a program with a context that thread 0 has made.
func (m *machine) startTeam() *program {
	m.t.Helper()
	c := m.launch("team")
	c.act("0 context c", "0 context ok")
	return c
}

// act sends a command for one thread to the program, and checks the answer.
func (p *program) act(command, want string) {
	p.t.Helper()
	p.send(command)
	p.want(want)
}

// join starts a thread in the context of thread 0.
func (p *program) join(thread int) {
	p.t.Helper()
	p.act(fmt.Sprintf("%d use c", thread), fmt.Sprintf("%d use ok", thread))
}

// wantInAnyOrder checks that the next answers are these, in any order.
func (p *program) wantInAnyOrder(lines ...string) {
	p.t.Helper()
	left := make(map[string]int)
	for _, l := range lines {
		left[l]++
	}
	for range lines {
		got := p.answer()
		if left[got]--; left[got] < 0 {
			p.t.Errorf("the program says %q; want %q", got, lines)
		}
	}
}

// A waiting program reports each reason of its wait once, to its log. Standard error is a pipe here,
// so that the user sees only the first one. (tests/e2e has the line at the end of a wait.)
func TestWaitIsTold(t *testing.T) {
	const told = "gpuarb: waits for the peer\n"
	for name, c := range map[string]struct{ variable, want string }{
		"job":    {job, told},
		"bare":   {"GPUARB_VIRTUALIZE=1", told},
		"quiet":  {"GPUARB_QUIET=1", ""},
		"logged": {"GPUARB_LOG=stderr", "second"},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := setup(t, []string{"limit", "1000", "wait", "1"}, c.variable)
			prog := m.startTeam()
			prog.act("0 alloc a 900", "0 alloc ok")
			prog.join(1)
			prog.send("1 alloc b 900")
			p.waitFor(1)
			for _, word := range []string{"first", "first", "second"} {
				p.say("notice " + word)
			}
			prog.send("0 free a")
			prog.wantInAnyOrder("0 free ok", "1 alloc ok")
			switch text := prog.end(); {
			case name == "logged" && strings.Count(text, c.want) != 1:
				t.Errorf("stderr: %q", text)
			case name != "logged" && text != c.want:
				t.Errorf("stderr: %q, want %q", text, c.want)
			}
		})
	}
}

// More threads wait than there are connections; other threads still get answers.
func TestOthersGoOn(t *testing.T) {
	p, m := setup(t, []string{"limit", "1000", "wait", "1"})
	c := m.startTeam()
	c.act("0 alloc a 900", "0 alloc ok")
	c.act("0 stream s", "0 stream ok")
	const many = 75
	var want []string
	for i := 1; i <= many; i++ {
		c.join(i)
	}
	for i := 1; i <= many; i++ {
		c.send(fmt.Sprintf("%d alloc b%d 900", i, i))
		c.send(fmt.Sprintf("%d free b%d", i, i))
		want = append(want, fmt.Sprintf("%d alloc ok", i), fmt.Sprintf("%d free ok", i))
	}
	p.waitFor(60) // one on each connection, except the reserved ones
	c.act("0 info", "0 info ok")
	c.act("0 streamdestroy s", "0 streamdestroy ok")
	c.act("0 alloc z 100", "0 alloc ok")
	c.act("0 free z", "0 free ok")
	p.waitFor(60)
	c.send("0 free a")
	c.wantInAnyOrder(append(want, "0 free ok")...)
	p.waitFor(0)
	wantUsed(t, p, 0)
}

// The daemon dies while threads wait. Each thread asks the new daemon with the number of its
// request, and with the flag for repeated requests.
func TestWaitOverRestart(t *testing.T) {
	p, m := setup(t, []string{"limit", "1000", "wait", "1"}, "GPUARB_ON_LOSS=closed")
	c := m.startTeam()
	c.act("0 alloc a 900", "0 alloc ok")
	c.join(1)
	c.join(2)
	c.send("1 alloc b 800")
	c.send("2 alloc d 700")
	first := p.waitFor(2)
	for range 2 {
		p.kill()
		p = startPeer(t, p.socket, "limit", "1000", "wait", "1")
		again := p.waitFor(2)
		for _, bytes := range []string{"800", "700"} {
			was, is := number(first, "5 99 "+bytes), number(again, "5 1099 "+bytes)
			if was == "" || is != was {
				t.Errorf("the request for %s was number %q, is %q", bytes, was, is)
			}
		}
	}
	c.send("1 free b")
	c.send("2 free d")
	c.send("0 free a")
	c.wantInAnyOrder("0 free ok", "1 alloc ok", "1 free ok", "2 alloc ok", "2 free ok")
	wantUsed(t, p, 0)
}

// number returns the number after the prefix of a line.
func number(lines []string, begin string) string {
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, begin+" "); ok {
			return rest
		}
	}
	return ""
}

// The daemon dies while a thread waits, and does not start again.
func TestWaitEndsWithTheDaemon(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"0": "1 alloc ok", "1": "1 alloc err 2"} {
		t.Run("loss="+policy, func(t *testing.T) {
			p, m := setup(t, []string{"limit", "1000", "wait", "1", "loss", policy})
			c := m.startTeam()
			c.act("0 alloc a 900", "0 alloc ok")
			c.join(1)
			c.send("1 alloc b 900")
			p.waitFor(1)
			p.kill()
			c.want(want)
			c.act("0 free a", "0 free ok")
		})
	}
}

// Opening a session may wait for its reserved memory. The program must not take this for a missing
// daemon. If the session is refused, the program gets no memory, and asks again the next time.
func TestHelloWaits(t *testing.T) {
	t.Run("admitted", func(t *testing.T) {
		p, m := setup(t, []string{"hello", "1"})
		c := m.launch("team")
		c.send("0 context c")
		p.waitFor(1)
		p.say("hello 0")
		p.say("admit")
		c.want("0 context ok")
		c.act("0 alloc a 900", "0 alloc ok")
		wantUsed(t, p, 900)
	})
	t.Run("restart", func(t *testing.T) {
		p, m := setup(t, []string{"hello", "1"})
		c := m.launch("team")
		c.send("0 context c")
		first := p.waitFor(1)
		p.kill()
		p = startPeer(t, p.socket, "hello", "1")
		again := p.waitFor(1)
		if was, is := number(first, "1 99 0"), number(again, "1 99 0"); was == "" || is != was {
			t.Errorf("Hello was number %q, is %q", was, is)
		}
		p.say("admit")
		c.want("0 context ok")
		c.act("0 alloc a 900", "0 alloc ok")
		wantUsed(t, p, 900)
	})
	t.Run("refused", func(t *testing.T) {
		p, m := setup(t, []string{"hello", "107"})
		c := m.launch("team")
		c.act("0 context c", "0 context err 2")
		c.act("0 context c", "0 context err 2")
		p.say("hello 0")
		c.act("0 context c", "0 context ok")
		c.act("0 alloc a 900", "0 alloc ok")
		wantUsed(t, p, 900)
		if text := c.end(); text != "gpuarb: refused by the peer: device memory is refused\n" {
			t.Errorf("stderr: %q", text)
		}
	})
	t.Run("no room for its session", func(t *testing.T) {
		p, m := setup(t, []string{"hello", "109"})
		c := m.launch("team")
		c.act("0 context c", "0 context err 2")
		p.say("hello 0")
		p.say("attach 109")
		c.act("0 context c", "0 context err 2")
		c.act("0 context c", "0 context err 2") // the policy for unknown devices does not apply
		p.say("attach 0")
		c.act("0 context c", "0 context ok")
		c.act("0 alloc a 900", "0 alloc ok")
		wantUsed(t, p, 900)
		if text := c.end(); text != "gpuarb: refused by the peer: device memory is refused\n" {
			t.Errorf("stderr: %q", text)
		}
	})
	t.Run("refused after a wait", func(t *testing.T) {
		p, m := setup(t, []string{"hello", "1"}, job)
		c := m.launch("team")
		c.send("0 context c")
		p.waitFor(1)
		p.say("answer 107")
		c.want("0 context err 2")
		if text := c.end(); text != "gpuarb: waits for the peer\ngpuarb: refused by the peer: device memory is refused\n" {
			t.Errorf("stderr: %q", text)
		}
	})
}

// A thread that uses another thread's context has a slot of its own: from making the context
// current until it has no current context, or ends.
func TestUseWaitsForASlot(t *testing.T) {
	p, m := setup(t, []string{"slots", "2"})
	c := m.startTeam()
	c.join(1)
	c.act("1 use c", "1 use ok") // it has the slot already
	c.send("2 use c")
	p.waitFor(1)
	c.send("1 use none")
	c.wantInAnyOrder("1 use ok", "2 use ok")
	c.act("2 alloc a 100", "2 alloc ok")
	c.send("3 use c")
	p.waitFor(1)
	p.say("answer 9")
	c.want("3 use err 2")
	c.send("3 use c")
	p.waitFor(1)
	c.send("2 end") // its slot ends with it
	c.want("3 use ok")
	c.act("0 destroy c", "0 destroy ok")
	c.act("3 use none", "3 use ok")
	c.act("4 context d", "4 context ok")
	c.act("5 context e", "5 context ok")
	if p.waitFor(0); p.most != 2 {
		t.Errorf("%d threads had a slot at once", p.most)
	}
}

// Slots follow contexts that are pushed and popped: a context left on the stack is still in use.
func TestPushWaitsForASlot(t *testing.T) {
	for _, version := range []string{"", "v1"} {
		push, pop := "push"+version, "pop"+version
		t.Run(push, func(t *testing.T) {
			p, m := setup(t, []string{"slots", "2"})
			c := m.startTeam()
			c.join(1)
			c.act("1 "+push+" c", "1 "+push+" ok")
			c.send("2 " + push + " c")
			p.waitFor(1)
			c.act("1 "+pop+" c", "1 "+pop+" ok")
			p.waitFor(1)
			c.send("1 " + pop + " c")
			c.wantInAnyOrder("1 "+pop+" ok", "2 "+push+" ok")
			c.act("2 "+push+" c", "2 "+push+" ok")
			c.send("1 " + push + " c")
			p.waitFor(1)
			c.act("2 "+pop+" c", "2 "+pop+" ok")
			p.waitFor(1)
			c.send("2 " + pop + " c")
			c.wantInAnyOrder("2 "+pop+" ok", "1 "+push+" ok")
			if p.waitFor(0); p.most != 2 {
				t.Errorf("%d threads had a slot at once", p.most)
			}
		})
	}
}
