package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has the tests of the rows B1 to B7 of rows.txt: the cap on streams. B6 is in plan_test.go.

// takeStreams creates streams and adds their names to handles. It checks that no handle is a default stream's or in
// handles already.
func takeStreams(t *testing.T, p *rig.Program, handles map[uint64]string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		p.Want(command, "ok")
		name := strings.Fields(command)[1]
		h := p.Number("value " + name)
		if h <= 2 {
			t.Errorf("%s is the handle %d, which is a default stream", name, h)
		}
		if other := handles[h]; other != "" {
			t.Errorf("%s and %s are one stream", name, other)
		}
		handles[h] = name
	}
}

// TestB1DistinctStreams: each granted stream is a stream of its own, and the count is visible.
func TestB1DistinctStreams(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{Devices: "2G,1G"}, limits{}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid, handles := p.PID(), map[uint64]string{}
		p.Want("alloc a 1", "ok") // a lease, without streams
		holds(t, m, pid, 0, 1, 0)
		for n := 1; n <= 8; n++ {
			command := fmt.Sprintf("stream s%d", n)
			if n%2 == 0 {
				command += " -1" // with a priority
			}
			takeStreams(t, p, handles, command)
			holds(t, m, pid, 0, 1, n)
		}
		p.Want("context other 1", "ok")
		takeStreams(t, p, handles, "stream o1", "stream o2")
		holds(t, m, pid, 0, 1, 8)
		holds(t, m, pid, 1, 0, 2)
		for _, name := range handles { // each works as a stream of its own
			p.Want("gate "+name, "ok")
			p.Want("query "+name, "err 600")
			for _, idle := range handles {
				if idle != name {
					p.Want("query "+idle, "ok")
				}
			}
			p.Want("open", "ok")
			p.Want("sync "+name, "ok")
		}
		for file, want := range map[string]string{
			"devices/0/streams.current": "8\n", "devices/1/streams.current": "2\n",
		} {
			if got := m.Read(file); got != want {
				t.Errorf("%s is %q, want %q", file, got, want)
			}
		}
		if got := columns(t, m.Read("leases"), "GPU", "STREAMS"); got != "0 8, 1 2" {
			t.Errorf("GPU and STREAMS of leases are %q", got)
		}
	})
}

// columns picks columns of a table by their headers.
func columns(t *testing.T, table string, names ...string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	at := map[string]int{}
	for i, name := range strings.Fields(lines[0]) {
		at[name] = i
	}
	var rows []string
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		var row []string
		for _, name := range names {
			row = append(row, fields[at[name]])
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return strings.Join(rows, ", ")
}

// TestB2AtTheCap: at the cap the next create fails, and the message names the cap.
func TestB2AtTheCap(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{streams: 3}, func(t *testing.T, w way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		takeStreams(t, p, map[uint64]string{}, "stream a", "stream b", "stream c 0")
		m.CountCalls("cuStreamCreate*")
		p.Want("stream d", errOutOfMemory) // the caller's handle is unchanged
		p.Want("stream d -1", errOutOfMemory)
		p.Want("stream d", errOutOfMemory)
		if n := m.Calls("cuStreamCreate*"); n != 0 {
			t.Errorf("the driver was asked for %d streams beyond the cap", n)
		}
		holds(t, m, pid, 0, 0, 3)
		if l := m.Lease(pid, 0); l.StreamsMax != 3 || l.Denied != 3 {
			t.Errorf("of at most %d streams %d were refused, want 3 and 3", l.StreamsMax, l.Denied)
		}
		p.Want("alloc a 1", "ok") // the cap on streams does not limit memory
		stderr := p.End()
		if w.run {
			contains(t, stderr, "): no stream on GPU 0: asked 1, and 3 of 3 (streams.max) are in use")
		} else {
			contains(t, stderr, "refused: a stream on device 0, 3 of 3 are taken")
		}
	})
}

// TestB2PerDevice: each device has its own cap on streams.
func TestB2PerDevice(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{streams: 2}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("streammany first 3", "ok 2 err 2")
		p.Want("context other 1", "ok")
		p.Want("streammany second 3", "ok 2 err 2")
		holds(t, m, pid, 0, 0, 2)
		holds(t, m, pid, 1, 0, 2)
	})
}

// TestB3DriverFails: if the driver fails to create a stream, the program gets the driver's error and no count changes.
func TestB3DriverFails(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{streams: 2}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream a", "ok")
		for _, c := range []struct{ function, command, code string }{
			{"cuStreamCreate", "stream b", "999"},
			{"cuStreamCreateWithPriority", "stream b -1", "46"},
			{"cuStreamCreate", "stream b", "2"},
		} {
			m.Sim("fail", c.function+":1-3:"+c.code)
			for range 3 {
				p.Want(c.command, "err "+c.code)
				holds(t, m, pid, 0, 0, 1)
			}
			m.Sim("clear")
		}
		p.Want("stream b", "ok") // the refused stream was not counted
		p.Want("stream c", errOutOfMemory)
		holds(t, m, pid, 0, 0, 2)
	})
}

// TestB4Default: there is a cap on streams by default.
func TestB4Default(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{}, func(t *testing.T, w way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("streammany s 1000", "ok 256 err 2")
		holds(t, m, pid, 0, 0, 256)
		if stderr := p.End(); w.run {
			contains(t, stderr, "256 of 256 (streams.max) are in use")
		}
	})
}

// TestB4InTheEnvironment: the cap in a program's environment is clamped. A value below 1 means 1, a value above the rule's
// cap means that cap, and a value that is not a number is ignored.
func TestB4InTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value string
		most  int
	}{{"0", 1}, {"-3", 1}, {"1", 1}, {"7", 7}, {"100000", 20}, {"99999999999999999999999", 20}, {"lots", 20}, {"", 20}} {
		t.Run(c.value, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{NoMount: true, Config: "schema_version = 1\n[defaults]\nstreams.max = 20\n"})
			p := m.Interact(m.Command(append(m.PreloadEnv(), "GPUARB_LOG=stderr", "GPUARB_STREAMS="+c.value),
				rig.Build(t, "programs/cudaprog-dlsym")))
			pid := p.PID()
			p.Want("streammany s 300", fmt.Sprintf("ok %d err 2", c.most))
			holds(t, m, pid, 0, 0, c.most)
			if stderr := p.End(); c.value == "lots" {
				contains(t, stderr, "GPUARB_STREAMS=lots is not a whole number; ignored")
			}
		})
	}
}

// TestB4InFilesAndFlags: in files and flags a cap below 1 is an error with a message.
func TestB4InFilesAndFlags(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{NoMount: true})
	for _, value := range []string{"0", "-1"} {
		file := filepath.Join(m.Dir, "bad.toml")
		if err := os.WriteFile(file, []byte("schema_version = 1\n[defaults]\nstreams.max = "+value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := rig.Run(t, m.Command(m.Env(), rig.Build(t, "gpuarbd"), "--check-config", "--config", file))
		if r.Code != 78 || !strings.Contains(r.Stdout+r.Stderr, "bad.toml:3: streams.max") {
			t.Errorf("streams.max = %s: status %d, want 78 and the line\n%s%s", value, r.Code, r.Stdout, r.Stderr)
		}
		r = rig.Run(t, m.Gpuarb("run", "--streams="+value, "--", "true"))
		if r.Code != 125 || !strings.Contains(r.Stderr, "--streams: "+value) {
			t.Errorf("--streams=%s: status %d, want 125 and the reason\n%s", value, r.Code, r.Stderr)
		}
	}
}

// TestB5UntilDestroyed: streams stay valid until they are destroyed, and a destroyed stream is uncounted.
func TestB5UntilDestroyed(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{streams: 3}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream kept", "ok")
		kept := p.Number("value kept")
		p.Want("stream b", "ok")
		for n := range 20 { // each destroyed stream makes room for one
			p.Want("stream c", "ok")
			p.Want("stream d", errOutOfMemory)
			holds(t, m, pid, 0, 0, 3)
			p.Want("streamdestroy "+[]string{"c", "b"}[n%2], "ok")
			holds(t, m, pid, 0, 0, 2)
			if n%2 == 1 {
				p.Want("stream b", "ok")
				p.Want("streamdestroy c", "ok")
			}
		}
		// The other streams keep working, with unchanged handles.
		if now := p.Number("value kept"); now != kept {
			t.Errorf("the handle is %d, and was %d", now, kept)
		}
		for _, name := range []string{"kept", "b"} {
			p.Want("gate "+name, "ok")
			p.Want("query "+name, "err 600")
			p.Want("open", "ok")
			p.Want("sync "+name, "ok")
			p.Want("streamdestroy "+name, "ok")
		}
		holds(t, m, pid, 0, 0, 0)
		p.Want("streammany again 4", "ok 3 err 2")
		holds(t, m, pid, 0, 0, 3)
	})
}

// TestB5WithTheContext: streams that end with their context are uncounted.
func TestB5WithTheContext(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{streams: 4}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream kept", "ok")
		for range 3 {
			p.Want("context second", "ok")
			p.Want("streammany s 5", "ok 3 err 2")
			agree(t, m)
			p.Want("destroy second", "ok")
			p.Want("use first", "ok")
			holds(t, m, pid, 0, 0, 1)
		}
		p.Want("sync kept", "ok")
	})
}

// TestB7UnknownHandle: an unknown stream handle gives the driver's error and changes no count.
func TestB7UnknownHandle(t *testing.T) {
	t.Parallel()
	everyWay(t, rig.Options{NoMount: true}, limits{streams: 2}, func(t *testing.T, _ way, m *rig.Machine, p *rig.Program) {
		pid := p.PID()
		p.Want("stream a", "ok")
		p.Want("stream b", "ok")
		gone := p.Number("value b")
		p.Want("streamdestroy b", "ok")
		for _, command := range []string{
			fmt.Sprintf("streamunknown %d", gone), "streamdestroy b", "streamunknown 4096",
			"streamunknown 0", "streamunknown 1", "streamunknown 2", // the default streams cannot be destroyed
		} {
			p.Want(command, errInvalidHandle)
			holds(t, m, pid, 0, 0, 1)
		}
		// A destroy that the driver refuses does not uncount the stream.
		m.Sim("fail", "cuStreamDestroy_v2:1-2:999")
		p.Want("streamdestroy a", "err 999")
		p.Want("streamdestroy a", "err 999")
		m.Sim("clear")
		holds(t, m, pid, 0, 0, 1)
		p.Want("allocasync x 1000 b", errInvalidHandle) // it gets no memory either
		holds(t, m, pid, 0, 0, 1)
		p.Want("stream b", "ok")
		p.Want("stream c", errOutOfMemory)
		p.Want("streamdestroy a", "ok")
		p.Want("streamdestroy b", "ok")
		holds(t, m, pid, 0, 0, 0)
	})
}
