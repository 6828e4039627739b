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

// This file shows that a program which makes no calls still returns what its pools keep when another job waits,
// and what the library's thread for that does in a forked child and with signals. The peer's counts are the
// oracle.

// threadsOf lists the threads of a process by name.
func threadsOf(t *testing.T, pid int) []string {
	t.Helper()
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		if name, err := os.ReadFile(path); err == nil { // the thread may have ended meanwhile
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}

// An idle program gives back pending bytes and unused bytes of its pools when another job waits for
// them, and not before. The library starts its own thread only when the program first frees in
// stream order.
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
	eventually(t, "the program gives back what its pool keeps", func() bool { return p.oneLease().used == 0 })
	if l := p.oneLease(); l.pending != 0 {
		t.Errorf("%+v", l)
	}
	// The next notification wakes the sleeping thread again. Bytes whose free has not executed stay in
	// use until it has.
	c.do("allocasync a 3M s", "ok")
	c.do("gate s", "ok")
	c.do("freeasync a s", "ok")
	p.say("notify all")
	wantUsed(t, p, 3<<20)
	c.do("open", "ok")
	eventually(t, "the program gives back what has executed", func() bool { return p.oneLease().used == 0 })
	if text := c.end(); text != "" {
		t.Errorf("stderr: %s", text)
	}
}

// blockedBy returns the mask of blocked signals of a process's thread with this name.
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

// The library's thread goes on for the parent, whatever a forked child does, and blocks all signals of the program.
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
	// All signals but SIGKILL and SIGSTOP, which cannot be blocked, and libc's own two.
	const never = 1<<(9-1) | 1<<(19-1) | 1<<(32-1) | 1<<(33-1)
	text := blockedBy(t, c.cmd.Process.Pid, "gpuarb")
	if mask, err := strconv.ParseUint(text, 16, 64); err != nil || mask|never != math.MaxUint64 {
		t.Errorf("the thread blocks %s", text)
	}
	c.send("fork;allocasync b 1M s;freeasync a s;join") // the driver of the parent refuses calls of the child
	c.want("allocasync b err 3")
	c.want("freeasync a err 3")
	c.want("fork ok 0")
	eventually(t, "the free has executed", func() bool {
		c.send("query s")
		return c.answer() == "query s ok"
	})
	p.say("notify all")
	eventually(t, "the parent gives back what its pool keeps", func() bool { return p.oneLease().used == 0 })
	if text := c.end(); text != "" {
		t.Errorf("stderr: %s", text)
	}
}
