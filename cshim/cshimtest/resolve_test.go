package cshimtest

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

// The driver is unloaded and loaded again; what the resolver knows must not dangle.
func TestReload(t *testing.T) {
	for _, how := range []string{"dlsym", "gpa"} {
		p, m := setup(t, nil)
		c := m.start(how)
		c.do("alloc a 100", "ok")
		c.do("reload", "ok")
		c.do("alloc b 20", "ok")
		wantUsed(t, p, 120)
		c.do("free a", "ok")
		wantUsed(t, p, 20)
	}
}

// lookups prints what each kind of look-up of a name finds.
func TestLookups(t *testing.T) {
	_, m := setup(t, nil)
	out, err := m.command(built(t, "programs/lookups")).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if !strings.HasSuffix(line, " ok") {
			t.Errorf("%s", line)
		}
	}
}

// Under the preload an ordinary program prints and returns what it always does.
func TestOrdinaryPrograms(t *testing.T) {
	m := newMachine(t)
	for _, args := range [][]string{{"/bin/true"}, {"/bin/ls", "/"}, {"/bin/sh", "-c", "echo a | cat; exit 3"}} {
		m.load = false
		want, wantErr := m.command(args[0], args[1:]...).CombinedOutput()
		m.load = true
		got, err := m.command(args[0], args[1:]...).CombinedOutput()
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%v: %q %v, want %q %v", args, got, err, want, wantErr)
		}
	}
}

// ffmpeg looks up some eighty exact names, unloads the driver before it ends, and says why it
// failed when it is refused.
func TestFFmpeg(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields("-nostdin -v error -f lavfi -i testsrc2=size=640x360 -frames:v 9 -vf format=nv12,hwupload_cuda,hwdownload,format=nv12 -f null -")
	p, m := setup(t, []string{"limit", "552960"})
	if out, err := m.command("ffmpeg", args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	if _, requests := p.show(); !contains(requests, "5 0 552960") {
		t.Errorf("requests: %v", requests)
	}
	p.say("limit 552959")
	out, err := m.command("ffmpeg", args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("%v: %s", err, out)
	}
}

// A driver that calls functions of its own through the global scope, or asks dlsym for them,
// reaches our wrappers: what the program asked for once is charged once.
func TestDriverThatReentersIsChargedOnce(t *testing.T) {
	p, m := setup(t, []string{"limit", "1M"})
	m.lib = filepath.Dir(built(t, "programs/reenter/libcuda.so.1"))
	cmd := m.command(built(t, "programs/loader"), "drive", "libcuda.so.1", "plain")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	for _, c := range []struct{ command, answer string }{
		{"", "ready"},
		{"alloc 1048575\n", "alloc 1048575 ok"},
		{"alloc 2\n", "alloc 2 err 2"},
		{"alloc 1\n", "alloc 1 ok"},
	} {
		if _, err := io.WriteString(in, c.command); err != nil {
			t.Fatal(err)
		}
		if !said.Scan() || said.Text() != c.answer {
			t.Fatalf("%s: the program says %q, want %q", c.command, said.Text(), c.answer)
		}
	}
	if l := p.only(); l.used != 1<<20 || l.contexts != 1 {
		t.Errorf("%+v, want 1 MiB and one context", l)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
