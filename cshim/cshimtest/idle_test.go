package cshimtest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// threadsOf lists the threads of a process by name.
func threadsOf(t *testing.T, pid int) []string {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		if name, err := os.ReadFile(path); err == nil { // or it has ended by now
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}

// A program that idles gives back what is pending, and what its pools keep, when
// somebody waits for it; not before, and without a thread of its own until it needs
// one.
func TestIdleProgramGivesBack(t *testing.T) {
	t.Parallel()
	p, m := setup(t, []string{"limit", "100M"})
	c := m.start("dlsym")
	c.do("stream s", "ok")
	c.do("poolkeep default 64M", "ok")
	c.do("allocasync a 5M s", "ok")
	if names := threadsOf(t, c.cmd.Process.Pid); slices.Contains(names, "gpuarb") {
		t.Errorf("threads before the first free: %v", names)
	}
	c.do("freeasync a s", "ok")
	eventually(t, "there is a thread for it", func() bool {
		return slices.Contains(threadsOf(t, c.cmd.Process.Pid), "gpuarb")
	})
	eventually(t, "the free has executed", func() bool {
		c.send("query s")
		return c.answer() == "query s ok"
	})
	wantUsed(t, p, 5<<20)
	p.say("notify all")
	eventually(t, "the program gives back what its pool keeps", func() bool { return p.only().used == 0 })
	if l := p.only(); l.pending != 0 {
		t.Errorf("%+v", l)
	}
	// Once more, from its sleep; what has not executed stays.
	c.do("allocasync a 3M s", "ok")
	c.do("gate s", "ok")
	c.do("freeasync a s", "ok")
	p.say("notify all")
	wantUsed(t, p, 3<<20)
	c.do("open", "ok")
	eventually(t, "the program gives back what has executed", func() bool { return p.only().used == 0 })
	if text := c.end(); text != "" {
		t.Errorf("stderr: %s", text)
	}
}

// blockedBy is the mask of blocked signals of a process's thread of this name.
func blockedBy(t *testing.T, pid int, name string) string {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		status, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(status), "Name:\t"+name+"\n") {
			continue
		}
		_, rest, _ := strings.Cut(string(status), "SigBlk:\t")
		mask, _, _ := strings.Cut(rest, "\n")
		return mask
	}
	t.Fatalf("no thread %s", name)
	return ""
}

// The thread is the parent's, whatever a child does, and takes none of its signals.
func TestIdleThreadAndFork(t *testing.T) {
	p, m := setup(t, []string{"limit", "100M"})
	c := m.start("dlsym")
	c.do("stream s", "ok")
	c.do("poolkeep default 64M", "ok")
	c.do("allocasync a 5M s", "ok")
	c.do("freeasync a s", "ok")
	eventually(t, "there is a thread for it", func() bool {
		return slices.Contains(threadsOf(t, c.cmd.Process.Pid), "gpuarb")
	})
	// All but those that no thread can block, and libc's own two.
	const never = 1<<(9-1) | 1<<(19-1) | 1<<(32-1) | 1<<(33-1)
	text := blockedBy(t, c.cmd.Process.Pid, "gpuarb")
	if mask, err := strconv.ParseUint(text, 16, 64); err != nil || mask|never != math.MaxUint64 {
		t.Errorf("the thread blocks %s", text)
	}
	c.send("fork;allocasync b 1M s;freeasync a s;join") // whose driver is the parent's
	c.want("allocasync b err 3")
	c.want("freeasync a err 3")
	c.want("fork ok 0")
	eventually(t, "the free has executed", func() bool {
		c.send("query s")
		return c.answer() == "query s ok"
	})
	p.say("notify all")
	eventually(t, "the parent gives back what its pool keeps", func() bool { return p.only().used == 0 })
	if text := c.end(); text != "" {
		t.Errorf("stderr: %s", text)
	}
}
