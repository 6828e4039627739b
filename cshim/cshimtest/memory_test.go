package cshimtest

import (
	"slices"
	"strings"
	"testing"
)

var ways = []string{"dlsym", "link", "gpa"}

func wantUsed(t testing.TB, p *peer, used int64) {
	t.Helper()
	if got := p.only(); got.used != used {
		t.Errorf("used %d, want %d", got.used, used)
	}
}

func TestEveryKindIsCharged(t *testing.T) {
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			p, m := setup(t, []string{"limit", "100M"})
			c := m.start(how)
			c.do("alloc a 1000", "ok")
			wantUsed(t, p, 1000)
			c.do("pitch b 640 540", "ok 1024")
			wantUsed(t, p, 1000+1024*540)
			c.do("managed c 4096", "ok")
			wantUsed(t, p, 1000+1024*540+4096)
			c.do("stream s", "ok")
			c.do("allocasync d 777 s", "ok")
			c.do("allocptsz e 1 2", "ok")
			c.do("allocpool f 2 s", "ok")
			wantUsed(t, p, 1000+1024*540+4096+780)
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				c.do("free "+name, "ok")
			}
			wantUsed(t, p, 780) // the pool keeps what it had
			c.do("sync s", "ok")
			wantUsed(t, p, 0)
			if l := p.only(); l.contexts != 1 || l.streams != 1 {
				t.Errorf("%+v, want one context and one stream", l)
			}
			if text := c.end(); text != "" {
				t.Errorf("stderr: %s", text)
			}
		})
	}
}

func TestTheLastByte(t *testing.T) {
	p, m := setup(t, []string{"limit", "1024"})
	c := m.start("dlsym")
	c.do("alloc a 768", "ok")
	c.do("alloc b 512", "err 2")
	wantUsed(t, p, 768)
	c.do("alloc b 256", "ok")
	c.do("alloc c 1", "err 2")
	wantUsed(t, p, 1024)
	c.do("free a", "ok")
	c.do("alloc c 769", "err 2")
	c.do("alloc c 768", "ok")
	wantUsed(t, p, 1024)
	if text := c.end(); text != "" {
		t.Errorf("a refusal without a job wrote: %s", text)
	}
}

func TestRefusalIsExplainedUnderAJob(t *testing.T) {
	_, m := setup(t, []string{"limit", "10", "text", "1"}, "GPUARB_JOB="+strings.Repeat("ab", 16))
	c := m.start("dlsym")
	c.do("alloc a 11", "err 2")
	if text := c.end(); text != "gpuarb: refused by the peer\n" {
		t.Errorf("stderr: %q", text)
	}
}

// The driver refuses what was admitted, or to free what it has: nothing may stay or go.
func TestDriverFailures(t *testing.T) {
	p, m := setup(t, nil, "SIMCUDA_FAIL=cuMemAlloc_v2:2:2,cuMemFree_v2:1:999,cuStreamCreate:1:3,cuStreamDestroy_v2:1:4")
	c := m.start("gpa")
	c.do("alloc a 100", "ok")
	c.do("alloc b 50", "err 2")
	wantUsed(t, p, 100)
	c.do("free a", "err 999")
	wantUsed(t, p, 100)
	c.do("free a", "ok")
	wantUsed(t, p, 0)
	c.do("free a", "err 1")
	c.do("freeunknown 12345", "err 1")
	wantUsed(t, p, 0)
	c.do("stream s", "err 3")
	if l := p.only(); l.streams != 0 {
		t.Errorf("streams %d after a failure", l.streams)
	}
	c.do("stream s", "ok")
	c.do("streamdestroy s", "err 4")
	if l := p.only(); l.streams != 1 {
		t.Errorf("streams %d", l.streams)
	}
	c.do("streamdestroy s", "ok")
	c.do("streamdestroy s", "err 400")
	if l := p.only(); l.streams != 0 {
		t.Errorf("streams %d at the end", l.streams)
	}
}

// A request larger than the limit asks once, and calls neither driver nor reaper.
func TestTooLargeIsCheap(t *testing.T) {
	p, m := setup(t, []string{"limit", "1000"})
	c := m.start("dlsym")
	c.do("alloc a 1", "ok")
	p.show()
	c.do("alloc b 1001", "err 2")
	if _, requests := p.show(); !slices.Equal(requests, []string{"5 3 1001"}) {
		t.Errorf("requests: %q", requests)
	}
}

// What is freed in stream order stays charged until the stream has executed it.
func TestAsynchronousFrees(t *testing.T) {
	t.Parallel()
	for _, free := range []string{"freeasync a s", "freeptsz a s"} {
		p, m := setup(t, []string{"limit", "1000"})
		c := m.start("dlsym")
		c.do("stream s", "ok")
		c.do("gate s", "ok")
		c.do("allocasync a 800 s", "ok")
		c.do(free, "ok")
		if l := p.only(); l.used != 800 || l.pending != 800 {
			t.Errorf("%+v, want all in use and pending", l)
		}
		c.do("alloc b 800", "err 2")
		c.do("open", "ok")
		c.do("sync s", "ok")
		c.do("alloc b 800", "ok")
		if l := p.only(); l.used != 800 || l.pending != 0 {
			t.Errorf("%+v, want the new block alone", l)
		}
		c.end()
	}
}

func TestTightAsynchronousLoop(t *testing.T) {
	p, m := setup(t, []string{"limit", "1M"}, "SIMCUDA_STREAM_DELAY_US=200")
	c := m.start("gpa")
	c.do("stream s", "ok")
	c.do("asyncpairs 300 1M s", "ok 300")
	c.do("sync s", "ok")
	c.do("alloc a 1M", "ok")
	c.do("free a", "ok")
	wantUsed(t, p, 0)
}

// A captured allocation takes nothing now, and a captured free gives nothing back.
func TestCaptureIsLeftAlone(t *testing.T) {
	p, m := setup(t, nil)
	c := m.start("dlsym")
	c.do("stream s", "ok")
	c.do("stream other", "ok")
	c.do("allocasync a 100 s", "ok")
	c.send("capture s")
	if got := c.answer(); !strings.HasSuffix(got, "ok") {
		t.Logf("the driver does not capture: %s", got)
		return
	}
	c.send("freeasync a s")
	c.answer()
	c.send("allocasync b 50 s")
	c.answer()
	wantUsed(t, p, 100)
}

func TestContexts(t *testing.T) {
	p, m := setup(t, nil)
	c := m.start("dlsym", "--context", "none")
	c.do("alloc a 1", "err 201")
	if leases, _ := p.show(); len(leases) != 0 {
		t.Errorf("a lease without a context: %+v", leases)
	}
	c.do("context one", "ok")
	c.do("alloc a 100", "ok")
	c.do("stream s", "ok")
	c.do("context two", "ok")
	c.do("alloc b 30", "ok")
	if l := p.only(); l.contexts != 2 || l.used != 130 || l.streams != 1 {
		t.Errorf("%+v", l)
	}
	c.do("destroy one", "ok")
	if l := p.only(); l.contexts != 1 || l.used != 30 || l.streams != 0 {
		t.Errorf("after the first context: %+v", l)
	}
	c.do("destroy one", "err 201")
	c.do("destroy two", "ok")
	if l := p.only(); l.contexts != 0 || l.used != 0 {
		t.Errorf("after both: %+v", l)
	}
	c.do("primary p", "ok")
	c.do("primary p", "ok")
	c.do("alloc a 7", "ok")
	c.do("release 0", "ok")
	if l := p.only(); l.contexts != 1 || l.used != 7 {
		t.Errorf("one release of two: %+v", l)
	}
	c.do("reset 0", "ok")
	if l := p.only(); l.contexts != 0 || l.used != 0 {
		t.Errorf("after the reset: %+v", l)
	}
}

// Each allocation is charged to the device that it is on.
func TestDevices(t *testing.T) {
	p, m := setup(t, nil)
	c := m.start("gpa")
	c.do("alloc a 100", "ok")
	c.do("context second 1", "ok")
	c.do("alloc b 20", "ok")
	c.do("stream s", "ok")
	c.do("use first", "ok")
	c.do("alloc c 3", "ok")
	c.do("allocasync d 500 s", "ok")
	leases, _ := p.show()
	if len(leases) != 2 || leases[0].used != 103 || leases[1].used != 520 {
		t.Errorf("%+v", leases)
	}
	c.do("free b", "ok")
	if leases, _ = p.show(); leases[1].used != 500 {
		t.Errorf("freed from the other device: %+v", leases)
	}
}

func TestStreams(t *testing.T) {
	p, m := setup(t, []string{"streams", "3"})
	c := m.start("link")
	c.do("stream a", "ok")
	c.do("stream b -1", "ok")
	c.do("stream c", "ok")
	c.do("stream d", "err 2")
	c.do("stream d -1", "err 2")
	c.do("streamdestroy b", "ok")
	c.do("stream d", "ok")
	if l := p.only(); l.streams != 3 {
		t.Errorf("%+v", l)
	}
}

// Queries answer with the budget, and with what the device has room for; they open no lease.
func TestQueries(t *testing.T) {
	p, m := setup(t, []string{"limit", "1000", "total", "600"})
	c := m.start("dlsym", "--context", "none")
	c.do("total 0", "ok 1000")
	if leases, _ := p.show(); len(leases) != 0 {
		t.Errorf("a query opened a lease: %+v", leases)
	}
	c.do("context x", "ok")
	c.do("info", "ok 600 1000")
	p.say("total 900")
	c.do("info", "ok 900 1000")
	c.do("alloc a 200", "ok")
	c.do("info", "ok 800 1000")
	c.do("free a", "ok")
	c.do("info", "ok 900 1000")

	m.env = append(m.env, "GPUARB_VIRTUALIZE=0")
	c = m.start("dlsym")
	c.do("total 0", "ok 8589934592")
}

func TestThreads(t *testing.T) {
	p, m := setup(t, []string{"limit", "3M", "wait", "1", "surplus", "64K"})
	c := m.start("dlsym")
	c.do("threads 20 200 20K 7", "ok")
	wantUsed(t, p, 0)
}
