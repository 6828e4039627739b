package cshimtest

import (
	"bufio"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// This file shows that programs and drivers find the right function, wrapped or not, in every way to look it
// up. cshim/entrypoints compares the answers with those of real drivers.

// TestLookups runs the program lookups, which looks up names in every way, and prints "ok" after each
// look-up with the expected result.
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

// A driver that calls its own functions through the global scope, or by dlsym, reaches our
// wrappers. The program's allocation must still be charged once.
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
	if l := p.oneLease(); l.used != 1<<20 || l.contexts != 1 {
		t.Errorf("%+v, want 1 MiB and one context", l)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
