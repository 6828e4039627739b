package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold which copy of the driver is limited if a program loads several, and that a copy which is not limited
// is named. The copies are the simulated driver under several paths, and the stub of the CUDA toolkit, which fails.

// anotherCopy copies a simulated library to a folder inside the machine's folder, and returns the path.
func anotherCopy(t *testing.T, m *rig.Machine, folder, library string) string {
	t.Helper()
	path := filepath.Join(m.Dir, folder, library)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, rig.Build(t, "sim/"+library), path)
	return path
}

// TestFailedCopyGivesItsPlace runs a program that tries several files named libcuda.so, of which
// the toolkit's stub fails in cuInit. It checks that the copy that works is limited, whatever the
// order in which copies are opened, searched, initialised and closed.
func TestFailedCopyGivesItsPlace(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	stub, real := rig.Build(t, "sim/toolkit/libcuda.so"), rig.Build(t, "sim/libcuda.so.1")
	second := anotherCopy(t, m, "second", "libcuda.so.1")
	for _, c := range []struct {
		name  string
		steps []string
	}{
		{"one after the other", []string{"open a " + stub, "find a HOW", "init a err 34", "open b " + real, "find b HOW", "init b"}},
		{"closed between", []string{"open a " + stub, "find a HOW", "init a err 34", "close a", "open b " + real, "find b HOW", "init b"}},
		{"closed, and by name", []string{"open a " + stub, "find a HOW", "init a err 34", "close a", "open b libcuda.so.1", "find b HOW", "init b"}},
		{"found before", []string{"open a " + stub, "find a HOW", "open b " + real, "find b HOW", "init a err 34", "init b"}},
		{"never tried", []string{"open a " + stub, "find a HOW", "open b " + real, "find b HOW", "init b"}},
		{"the stub later", []string{"open b " + real, "find b HOW", "open a " + stub, "find a HOW", "init a err 34", "init b"}},
		{"the stub last", []string{"open b " + real, "find b HOW", "init b", "open a " + stub, "find a HOW", "init a err 34"}},
		{"three", []string{"open a " + stub, "open c " + second, "open b " + real, "find a HOW", "find c HOW", "find b HOW", "init a err 34", "init b"}},
	} {
		for _, how := range []string{"dlsym", "gpa"} {
			if how == "gpa" && strings.Contains(strings.Join(c.steps, ";"), stub) {
				// The stub's cuGetProcAddress fails like all its functions, so the stub's functions are looked up by
				// dlsym.
				for i := range c.steps {
					c.steps[i] = strings.Replace(c.steps[i], "find a HOW", "find a dlsym", 1)
				}
			}
			t.Run(c.name+"/"+how, func(t *testing.T) {
				p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
				for _, step := range c.steps {
					command, code, failed := strings.Cut(strings.ReplaceAll(step, "HOW", how), " err ")
					want := "ok"
					if failed {
						want = "err " + code
					}
					p.Want(command, want)
				}
				p.Want("context b", "ok")
				p.Want("room b", fmt.Sprint("ok ", 1<<20))
				p.Want("alloc b 1048575", "ok")
				p.Want("free b", "ok")
				p.Want("alloc b 1048576", "ok")
				p.Want("alloc b 1", "err 2")
				if said := p.End(); strings.Contains(said, "libcuda") {
					t.Errorf("it says %s", said)
				}
			})
		}
	}
}

// TestClosedCopyIsGone checks that the library does not keep a failed copy loaded. If it did, a
// later dlopen of "libcuda.so.1" would find that copy, and a plug-in would be bound to it.
func TestClosedCopyIsGone(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
	p.Want("open a "+rig.Build(t, "sim/toolkit/libcuda.so"), "ok")
	p.Want("find a dlsym", "ok")
	p.Want("init a", "err 34")
	p.Want("room a", "err 34")
	p.Want("close a", "ok")
	p.Want("link", "ok")
	p.Want("open b libcuda.so.1", "ok")
	p.Want("find b gpa", "ok")
	p.Want("context b", "ok")
	p.Want("alloc b 1", "err 2")
	p.End()
}

// TestCopyKeepsItsPlace closes the first of two copies of the driver and looks up the functions of the other copy again. The
// functions that the program had before must still be limited, and no message may mention a second copy.
func TestCopyKeepsItsPlace(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	stub, real := rig.Build(t, "sim/toolkit/libcuda.so"), rig.Build(t, "sim/libcuda.so.1")
	p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
	for _, step := range []string{"open a " + stub, "find a dlsym", "open b " + real, "find b dlsym", "close a",
		"open c " + real, "find c dlsym", "init c", "context b"} {
		p.Want(step, "ok")
	}
	p.Want("alloc b 1048577", "err 2")
	p.Want("alloc b 1048576", "ok")
	p.Want("init b", "ok")
	if said := p.End(); strings.Contains(said, "libcuda") {
		t.Errorf("it says %s", said)
	}
}

// TestTwoCopiesThatWork checks that one of two working copies is limited, that each call reaches
// the copy in which it was looked up, and that stderr and the events name the copy that is not
// limited.
func TestTwoCopiesThatWork(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	one, two := rig.Build(t, "sim/libcuda.so.1"), anotherCopy(t, m, "two", "libcuda.so.1")
	for _, c := range []struct {
		name       string
		steps      []string
		held, free string
	}{
		{"first", []string{"find a dlsym", "find b dlsym", "init a", "init b"}, "a", "b"},
		{"one by one", []string{"find a dlsym", "init a", "context a", "find b gpa", "init b"}, "a", "b"},
		{"the second first", []string{"find a dlsym", "find b dlsym", "init b", "context b", "init a"}, "a", "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
			p.Want("open a "+one, "ok")
			p.Want("open b "+two, "ok")
			for _, step := range c.steps {
				p.Want(step, "ok")
			}
			p.Want("context "+c.held, "ok")
			p.Want("alloc "+c.held+" 1048577", "err 2")
			p.Want("alloc "+c.held+" 1048576", "ok")
			p.Want("context "+c.free, "ok")
			p.Want("alloc "+c.free+" 2097152", "ok")
			p.Want("free "+c.held, "ok")
			pid := p.PID()
			said := p.End()
			for _, path := range []string{one, two} {
				if !strings.Contains(said, path) {
					t.Errorf("on stderr it says %q, and does not name %s", said, path)
				}
			}
			if n := strings.Count(said, two); n != 1 {
				t.Errorf("it is said %d times: %s", n, said)
			}
			found := rig.Run(t, m.Gpuarb("events", "--kind", "two_copies", "--json"))
			for _, want := range []string{one, two, fmt.Sprintf(`"pid":%d`, pid)} {
				if !strings.Contains(found.Stdout, want) {
					t.Errorf("the events do not have %s:\n%s%s", want, found.Stdout, found.Stderr)
				}
			}
		})
	}
}

// TestOneCopyTooMany loads more copies of the driver than the library can track. Stderr must name the first untracked
// copy once, and the first copy must still be limited.
func TestOneCopyTooMany(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
	paths := map[string]string{}
	for _, letter := range []string{"a", "b", "c", "d", "e", "f"} {
		paths[letter] = anotherCopy(t, m, letter, "libcuda.so.1")
		p.Want("open "+letter+" "+paths[letter], "ok")
		p.Want("find "+letter+" dlsym", "ok")
	}
	p.Want("init a", "ok")
	p.Want("context a", "ok")
	p.Want("alloc a 1048577", "err 2")
	said := p.End()
	if strings.Count(said, "more copies") != 1 || !strings.Contains(said, paths["e"]) {
		t.Errorf("it says %q, want one line that names %s", said, paths["e"])
	}
}

// TestTwoNVMLs checks that the working copy of NVML shows the budget as the device's memory.
func TestTwoNVMLs(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
	p.Want("nvml a "+rig.Build(t, "sim/toolkit/libnvidia-ml.so"), "err 9")
	p.Want("nvml b "+rig.Build(t, "sim/libnvidia-ml.so.1"), fmt.Sprint("ok ", 1<<20))
	if said := p.End(); strings.Contains(said, "libnvidia-ml") {
		t.Errorf("it says %s", said)
	}
	p = m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/copies")))
	two := anotherCopy(t, m, "two", "libnvidia-ml.so.1")
	p.Want("nvml a "+rig.Build(t, "sim/libnvidia-ml.so.1"), fmt.Sprint("ok ", 1<<20))
	p.Ask("nvml b " + two)
	if said := p.End(); !strings.Contains(said, two) {
		t.Errorf("it says %q of the second copy", said)
	}
}
