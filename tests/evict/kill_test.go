package evict

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
	"golang.org/x/sys/unix"
)

// This file kills the daemon at each fault point of a suspension. Afterwards the driver must count exactly the bytes of the living
// programs, and nothing may stay reserved. It also has the types desk and server, by which deaths_test.go kills the other processes.

// desk receives the calls of a test's hooks. A hook reports its argument and its PID to the desk, and ends with the status that the test
// sends.
type desk struct {
	t      *testing.T
	folder string
	calls  chan call
}

// call is a running hook that has reported to the desk.
type call struct {
	desk *desk
	what string // argument of the hook: suspend or resume
	pid  int
}

// newDesk returns a desk, with a folder that has the script of its hooks.
func newDesk(t *testing.T) *desk {
	d := &desk{t: t, folder: t.TempDir(), calls: make(chan call, 64)}
	if err := os.Chmod(d.folder, 0o777); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nmkfifo -m 666 %[1]s/$$ && echo $1 $$ > %[1]s/calls\nread how < %[1]s/$$\nrm -f %[1]s/$$\nexit $how\n", d.folder)
	if err := os.WriteFile(d.hook(), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	calls := filepath.Join(d.folder, "calls")
	if err := unix.Mkfifo(calls, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(calls, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	go func() {
		for lines := bufio.NewScanner(f); lines.Scan(); {
			c := call{desk: d}
			if _, err := fmt.Sscan(lines.Text(), &c.what, &c.pid); err == nil {
				d.calls <- c
			}
		}
	}()
	return d
}

func (d *desk) hook() string { return filepath.Join(d.folder, "hook") }

// next waits for the next hook, and fails the test unless its argument is what.
func (d *desk) next(what string) (c call) {
	d.t.Helper()
	rig.Eventually(d.t, "the hook runs: "+what, func() bool {
		select {
		case c = <-d.calls:
			return true
		default:
			return false
		}
	})
	if c.what != what {
		d.t.Fatalf("the hook is asked to %s, and must be asked to %s", c.what, what)
	}
	return c
}

// ends lets the hook end with a status. It does nothing if the hook was killed.
func (c call) ends(status int) {
	c.desk.t.Helper()
	f, err := os.OpenFile(filepath.Join(c.desk.folder, fmt.Sprint(c.pid)), os.O_RDWR, 0) // never blocks, even without a reader
	if err != nil {
		c.desk.t.Fatal(err)
	}
	c.desk.t.Cleanup(func() { _ = f.Close() })
	if _, err := fmt.Fprintln(f, status); err != nil {
		c.desk.t.Fatal(err)
	}
}

// lives reports whether the hook still runs.
func (c call) lives() bool { return unix.Kill(c.pid, 0) == nil }

// machine returns a machine with a device of 8 GiB, and with hooks that report to the desk. more is added to its configuration.
func (d *desk) machine(o rig.Options, more string) *rig.Machine {
	o.Devices, o.NoMount, o.Sim = "8G", true, []string{"SIMCUDA_CONTEXT_BYTES=0"}
	o.Config = fmt.Sprintf(`schema_version = 1
[defaults]
on_full = "wait"
on_loss = "closed"
evict.after = "1s"
evict.how = "hook"
evict.suspend = [%[1]q, "suspend"]
evict.resume = [%[1]q, "resume"]
evict.idle_after = "500ms"
evict.min_resident = "1s"
%[2]s`, d.hook(), more)
	return rig.New(d.t, o)
}

// server is a program that the test lets free its memory and allocate it again, as its hooks ask.
type server struct {
	*rig.Program
	desk *desk
	has  bool // it has its memory
}

// serve starts a server with 6 GiB.
func serve(m *rig.Machine, d *desk) *server {
	s := &server{Program: cudaprog(m), desk: d, has: true}
	s.Want("alloc a 6G", "ok")
	return s
}

// handle does what all hooks ask that have reported since the last call.
func (s *server) handle() {
	s.desk.t.Helper()
	for {
		select {
		case c := <-s.desk.calls:
			s.does(c)
		default:
			return
		}
	}
}

// does does what a hook asks, and lets the hook end. If the hook asks a second time, there is nothing left to do.
func (s *server) does(c call) {
	s.desk.t.Helper()
	switch {
	case c.what == "suspend" && s.has:
		s.Want("free a", "ok")
	case c.what == "resume" && !s.has:
		s.Want("alloc a 6G", "ok")
	}
	s.has = c.what == "resume"
	c.ends(0)
}

// until does what hooks ask until a condition holds. what names the condition.
func (s *server) until(what string, holds func() bool) {
	s.desk.t.Helper()
	rig.Eventually(s.desk.t, what, func() bool { s.handle(); return holds() })
}

// quiet does what hooks ask until the queue is empty, all jobs are resident and nothing is reserved. Then it compares the driver's count
// with used, the bytes that all programs hold.
func (s *server) quiet(m *rig.Machine, used uint64) {
	m.T.Helper()
	s.until("nothing waits, and nothing is reserved", func() bool {
		s := m.Snapshot()
		for _, j := range s.Jobs {
			if j.Residence != "" {
				return false
			}
		}
		return len(s.Queue) == 0 && s.Devices[0].Reserved == 0 && uint64(s.Devices[0].Used) == used
	})
	if n := m.SimNumber("used", "0"); n != used {
		m.T.Errorf("the driver has %d bytes in use, and must have %d", n, used)
	}
	if peak := m.SimNumber("peak", "0"); peak > 8*gib {
		m.T.Errorf("the driver saw %d bytes in use at once", peak)
	}
}

// reviver starts the daemon again each time it dies, without the fault that killed it.
type reviver struct {
	mu     sync.Mutex
	deaths int
	over   bool
	done   sync.WaitGroup
}

// revive starts a reviver. stop ends the reviver, starts a last daemon, and returns how often the daemon had died before.
func revive(m *rig.Machine) (stop func() (deaths int)) {
	r := &reviver{}
	r.done.Go(func() {
		for {
			<-m.Exited()
			r.mu.Lock()
			over := r.over
			r.deaths++
			r.mu.Unlock()
			if over {
				return
			}
			m.Arm()
			if err := m.TryStart(); err != nil {
				m.T.Errorf("the next daemon: %v", err)
				return
			}
		}
	})
	return func() int {
		r.mu.Lock()
		r.over = true
		deaths := r.deaths
		r.mu.Unlock()
		m.Kill()
		r.done.Wait()
		m.Start()
		return deaths
	}
}

// faultPoints returns the fault points in the daemon's source whose names contain "suspension".
func faultPoints(t *testing.T) (names []string) {
	for _, file := range []string{"suspensions.go", "evict.go", "recover.go"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "daemon", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), `faults.At("`)[1:] {
			if name, _, _ := strings.Cut(part, `"`); strings.Contains(name, "suspension") {
				names = append(names, name)
			}
		}
	}
	if len(names) < 5 {
		t.Fatalf("only %q", names)
	}
	return names
}

// TestDaemonDiesAtEachStep: a job makes room and returns, and the daemon dies at a fault point. In the first run it dies when it comes
// there for the first time, in the second run at the second time, and so on. With the next daemon the waiting program gets its memory,
// and the job returns.
func TestDaemonDiesAtEachStep(t *testing.T) {
	t.Parallel()
	for _, point := range faultPoints(t) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			for nth := 1; ; nth++ {
				if died := diesAt(t, fmt.Sprintf("%s:%d", point, nth)); !died {
					if nth == 1 {
						t.Error("the daemon never comes to this fault point")
					}
					return
				}
				if strings.HasPrefix(point, "recover.") { // each daemon comes there once, at its start
					return
				}
			}
		})
	}
}

// diesAt lets a job make room and return, while the daemon dies at fault, a fault point with a count. It returns false if the daemon
// never came there so often.
func diesAt(t *testing.T, fault string) (died bool) {
	d := newDesk(t)
	m := d.machine(rig.Options{Binary: rig.Build(t, "faults/gpuarbd"), Environ: []string{"GPUARB_FAULT=" + fault}, Stopped: true}, "")
	if strings.HasPrefix(fault, "recover.") {
		m.Arm()
		m.Start()
		s := serve(m, d)
		waits := cudaprog(m)
		waits.Tell("alloc b 4G")
		s.does(d.next("suspend"))
		waits.Expect("alloc b ok")
		m.Kill()
		m.Arm("GPUARB_FAULT=" + fault)
		if err := m.TryStart(); err == nil {
			return false
		}
		m.Arm()
		m.Start()
		waits.Want("free b", "ok")
		s.until("the job returns", func() bool { return s.has })
		s.quiet(m, 6*gib)
		return true
	}
	m.Start()
	stop := revive(m)
	s := serve(m, d)
	waits := cudaprog(m)
	waits.Tell("alloc b 4G")
	s.until("the waiting program has its memory", func() bool { return !waits.Silent() })
	waits.Expect("alloc b ok")
	if s.has {
		t.Errorf("%s: both have their memory", fault)
	}
	waits.Want("free b", "ok")
	s.until("the job returns", func() bool { return s.has })
	died = stop() > 0
	s.quiet(m, 6*gib)
	waits.Want("alloc b 2G", "ok")
	waits.Want("free b", "ok")
	s.Want("free a", "ok")
	s.CloseStdin()
	waits.CloseStdin()
	m.AllGone()
	return died
}
