package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that calls are limited in whichever way a program finds the driver, and that the library adds no
// system calls to calls from its credit. loader_test.go has the ways to look up a function, and copies_test.go several
// copies of the driver.

// TestEveryWayToTheDriverIsCaught: every call that takes memory or a stream is admitted, whether the program finds it by dlsym, by linking or only by
// cuGetProcAddress_v2, and whether it loads the driver once or
// twice.
func TestEveryWayToTheDriverIsCaught(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	for _, how := range []string{"dlsym", "link", "gpa"} {
		for _, reload := range []bool{false, true} {
			if reload && how == "link" {
				continue // a linked driver stays loaded
			}
			t.Run(fmt.Sprintf("%s/reload=%v", how, reload), func(t *testing.T) {
				p := m.Interact(m.Gpuarb("run", "--memory", "10M", "--streams", "2", "--", cudaprog(t, how)))
				if reload {
					p.Want("reload", "ok")
					p.Want("init", "ok")
				}
				p.Want("alloc a 4M", "ok")
				p.Want("pitch b 1000 1024", "ok 1024")
				p.Want("managed c 3M", "ok")
				p.Want("allocasync d 1M 0", "ok")
				p.Want("allocptsz e 512K 0", "ok")
				p.Want("allocpool f 512K 0", "ok")
				p.Want("alloc g 1", "err 2")
				p.Want("allocasync g 1 0", "err 2")
				p.Want("stream s", "ok")
				p.Want("stream r -1", "ok")
				p.Want("stream q", "err 2")
				p.Want("info", "ok 0 10485760")
				p.Want("total", "ok 10485760")
				if total := m.SimNumber("total", "0"); total != 10<<20 {
					t.Errorf("the driver holds %d bytes, want all of the budget", total)
				}
				p.Want("streamdestroy s", "ok")
				p.Want("stream q", "ok")
				p.Want("free a", "ok")
				p.Want("alloc g 4M", "ok")
				p.End()
				rig.Eventually(t, "its lease is gone", func() bool { return len(m.Snapshot().Leases) == 0 })
			})
		}
	}
}

// TestPythonExtensionIsCaught: a Python extension that loads the driver is limited.
func TestPythonExtensionIsCaught(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	const script = `
import sys
sys.path.insert(0, sys.argv[1])
import cudaext
print("alloc", cudaext.alloc(1 << 20))
print("alloc", cudaext.alloc(1))
`
	r := rig.Run(t, m.Gpuarb("run", "--memory", "1M", "--", python(), "-c", script, rig.Build(t, "programs")))
	if got := strings.Fields(r.Stdout); len(got) != 4 || got[1] != "0" || got[3] != "2" {
		t.Errorf("exit status %d, stdout %q\n%s", r.Code, r.Stdout, r.Stderr)
	}
}

// systemCalls counts the system calls of a program that runs a script and must print want. options are strace's.
func systemCalls(t *testing.T, m *rig.Machine, env []string, script, want string, options ...string) int {
	t.Helper()
	trace := filepath.Join(m.Dir, "strace")
	r := rig.Run(t, m.Command(env, "strace", append(options, "-f", "-o", trace, cudaprog(t, "dlsym"), script)...))
	if r.Code != 0 || !strings.Contains(r.Stdout, want) {
		t.Fatalf("exit status %d, %s\n%s", r.Code, r.Stdout, r.Stderr)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// TestSteadyProgramMakesNoSystemCalls compares the system calls of two programs, one of which has a million more pairs
// of alloc and free, of blocks that its credit covers. The pointer table maps its parts at first use, so the comparison
// begins after a hundred thousand pairs.
func TestSteadyProgramMakesNoSystemCalls(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	env := append(m.PreloadEnv(), "LD_LIBRARY_PATH="+rig.Build(t, "sim/stub"))
	count := func(pairs int) int {
		return systemCalls(t, m, env, fmt.Sprintf("alloc warm 1M; free warm; pairs %d 1M", pairs), fmt.Sprintf("pairs ok %d", pairs),
			"-E", "LD_PRELOAD="+rig.Build(t, "libgpuarb.so"))
	}
	few, many := count(100_000), count(1_100_000)
	if few == 0 || many > few {
		t.Errorf("%d system calls with a million pairs more, %d without", many, few)
	}
}

// TestQuestionsOfNVML compares the system calls of two programs, one of which asks NVML for the free memory a thousand times more often.
// NVML makes some system calls for each query. The library adds only those by which it looks up the device once a second.
func TestQuestionsOfNVML(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G"})
	env := append(m.Env(), "GPUARB_SOCKET="+m.Socket)
	more := func(options ...string) int {
		count := func(questions int) int {
			return systemCalls(t, m, env, fmt.Sprintf("alloc a 1M; nvmlinfos %d", questions), fmt.Sprintf("nvmlinfos ok %d", questions), options...)
		}
		return count(1100) - count(100)
	}
	bare, under := more(), more("-E", "LD_PRELOAD="+rig.Build(t, "libgpuarb.so"))
	if bare < 1000 || under > bare+500 {
		t.Errorf("for a thousand questions %d system calls under the library, %d without", under, bare)
	}
}
