package cshimtest

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// This file shows what a program counts and may allocate when its connection breaks, when its daemon restarts
// or stays away, and when the next daemon does not know its session. wait_test.go has waiting requests.

// A program that reads free memory in a loop asks the daemon only sometimes. If the daemon does not
// send the credit word of its answer, it is asked each time.
func TestQueriesAreFew(t *testing.T) {
	for able, few := range map[string]bool{"1": true, "0": false} {
		p, m := setup(t, []string{"able", able})
		c := m.start("dlsym")
		began := time.Now()
		c.do("infos 20000", "ok 20000")
		most := int(time.Since(began)/(50*time.Millisecond)) + 2
		_, requests := p.show()
		asked := 0
		for _, r := range requests {
			if strings.HasPrefix(r, "9 ") || strings.HasPrefix(r, "11 ") {
				asked++
			}
		}
		if few != (asked <= most) || asked == 0 {
			t.Errorf("flags %s: 20,000 questions are %d requests, and %d are few", able, asked, most)
		}
	}
}

// The daemon dies and starts again: no call fails, and every byte is counted once.
func TestDaemonRestarts(t *testing.T) {
	for _, again := range [][]string{{}, {"newpage", "1"}} {
		t.Run(strings.Join(again, "="), func(t *testing.T) {
			p, m := setup(t, []string{"surplus", "1M"}, "GPUARB_ON_LOSS=closed")
			c := m.start("dlsym")
			c.do("many a 10 1000", "ok 10")
			c.do("stream s", "ok")
			p.kill()
			c.do("many b 10 1000", "ok 10") // from credit, without the daemon
			c.send("alloc big 5M")          // needs a request, and there is no daemon
			time.Sleep(100 * time.Millisecond)
			p = startPeer(t, p.socket, again...)
			c.want("alloc big ok")
			if l := p.oneLease(); l.used != 20000+5<<20 || l.streams != 1 || l.contexts != 1 {
				t.Errorf("resumed with %+v", l)
			}
			c.do("freemany a", "ok 10")
			c.do("freemany b", "ok 10")
			c.do("free big", "ok")
			c.do("streamdestroy s", "ok")
			if l := p.oneLease(); l.used != 0 || l.streams != 0 {
				t.Errorf("at the end %+v", l)
			}
			if text := c.end(); text != "" {
				t.Errorf("stderr: %s", text)
			}
		})
	}
}

// A daemon that does not know the session opens a new one. Bytes acquired before are charged
// nowhere.
func TestResumeIsRefused(t *testing.T) {
	p, m := setup(t, nil)
	c := m.start("dlsym")
	c.do("alloc a 1000", "ok")
	p.kill()
	p = startPeer(t, p.socket, "resume", "0")
	c.do("alloc b 10", "ok")
	wantUsed(t, p, 10)
	c.do("free a", "ok")
	wantUsed(t, p, 10)
	c.do("free b", "ok")
	wantUsed(t, p, 0)
}

// The program destroys a pool with unused bytes of an earlier session. They are in no sum of the
// present session, so a later Resume reports only bytes acquired since.
func TestPoolEndsAfterItsSession(t *testing.T) {
	p, m := setup(t, nil)
	c := m.start("dlsym")
	for _, line := range []string{"pool own", "poolkeep own 64M", "stream s", "allocpool a 1000 s own", "freeasync a s", "sync s"} {
		c.do(line, "ok")
	}
	wantUsed(t, p, 1000)
	p.kill()
	p = startPeer(t, p.socket, "resume", "0")
	c.do("alloc b 10", "ok")
	c.do("pooldestroy own", "ok")
	p.kill()
	p = startPeer(t, p.socket)
	c.do("alloc c 10", "ok")
	wantUsed(t, p, 20)
	c.do("free b", "ok")
	c.do("free c", "ok")
	wantUsed(t, p, 0)
}

// A new session begins between the two charges of a pitched block. All its bytes are charged in the
// new session, and all are released there.
func TestResumeIsRefusedInACorrection(t *testing.T) {
	p, m := setup(t, nil, "SIMCUDA_PITCH=1024", "SIMCUDA_FAIL=cuMemAllocPitch_v2:1:stop")
	c := m.start("dlsym")
	c.send("pitch a 100 1000") // the library expects a pitch of 512
	c.stopped()
	wantUsed(t, p, 512*1000)
	p.kill()
	p = startPeer(t, p.socket, "resume", "0")
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.want("pitch a ok 1024")
	wantUsed(t, p, 1024*1000)
	c.do("free a", "ok")
	wantUsed(t, p, 0)
}

// The connection breaks in the middle of a request; the request is sent again.
func TestRequestIsSentAgain(t *testing.T) {
	p, m := setup(t, nil)
	c := m.start("dlsym")
	c.do("alloc a 1000", "ok")
	p.say("drop 5")
	c.do("alloc b 500", "ok")
	wantUsed(t, p, 1500)
	_, requests := p.show()
	p.say("drop 7")
	c.do("stream s", "ok")
	if l := p.oneLease(); l.streams != 1 {
		t.Errorf("%+v %v", l, requests)
	}
}

// The daemon stays away: the program can use the credit that it has; then the policy applies.
func TestDaemonIsGone(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"0": "ok", "1": "err 2"} {
		t.Run("loss="+policy, func(t *testing.T) {
			p, m := setup(t, []string{"surplus", "1M", "loss", policy})
			c := m.start("dlsym")
			c.do("alloc a 1000", "ok")
			p.kill()
			c.do("many b 100 1000", "ok 100")
			c.do("alloc c 100M", want)
			began := time.Now()
			c.do("alloc d 100M", want)
			if took := time.Since(began); took > time.Second {
				t.Errorf("the second time took %v", took)
			}
			c.do("freemany b", "ok 100")
			c.do("many b 100 1000", "ok 100")
			if text := c.end(); strings.Count(text, "\n") != 1 {
				t.Errorf("stderr: %q", text)
			}
		})
	}
}

// A free sends a notice while another client waits, and that client gets the bytes.
func TestNotify(t *testing.T) {
	p, m := setup(t, []string{"limit", "1000", "wait", "1"})
	c := m.start("dlsym")
	c.do("stream s", "ok")
	c.do("allocasync a 900 s", "ok")
	c.do("delay s 700", "ok") // longer than the library delays a refusal in the hope of pending bytes
	c.do("freeasync a s", "ok")
	c.do("alloc b 900", "ok") // waits for bytes whose free only this thread can notice
	if _, requests := p.show(); !contains(requests, "6 0 0") {
		t.Errorf("no notice: %v", requests)
	}
	c.do("free b", "ok")
	wantUsed(t, p, 0)
}

func contains(lines []string, want string) bool {
	for _, l := range lines {
		if l == want {
			return true
		}
	}
	return false
}
