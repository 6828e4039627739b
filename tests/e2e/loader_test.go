package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// These tests hold that the library changes no look-up of a symbol except those of driver functions, which it catches
// under every name of the driver. Memory that bypasses the library is still counted. The oracle for look-ups is the
// program without the library.

// whoMissed matches the name of the object for which the loader reports a missing symbol: the
// object that looked it up, or the library if it did so on that object's behalf.
var whoMissed = regexp.MustCompile(`\S+: undefined symbol`)

// TestLoaderKeepsItsMeaning checks look-ups with RTLD_NEXT and RTLD_DEFAULT, versions and namespaces, from a program, from its
// libraries and from a library opened later. Functions of the program that have names of driver functions stay
// the program's own. All this also holds with the library switched off.
func TestLoaderKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true, Stopped: true})
	on := append(m.Env(), preload(t)...)
	off := append(slices.Clone(on), "GPUARB_DISABLE=1")
	for _, c := range []struct {
		program, what string
		env           []string
		lines         int
	}{{"loader", "semantics", on, 60}, {"loader-own", "own", on, 15}, {"loader", "semantics", off, 60}, {"loader-own", "own", off, 15}, {"loader", "unload", off, 9}} {
		t.Run(c.what, func(t *testing.T) {
			program := rig.Build(t, "programs/"+c.program)
			want := rig.Run(t, m.Command(m.Env(), program, c.what))
			got := rig.Run(t, m.Command(c.env, program, c.what))
			if c.what == "own" {
				want.Stdout = whoMissed.ReplaceAllString(want.Stdout, "undefined symbol")
				got.Stdout = whoMissed.ReplaceAllString(got.Stdout, "undefined symbol")
			}
			if got != want || want.Code != 0 || strings.Count(want.Stdout, "\n") < c.lines {
				t.Errorf("with the preload %d\n%s%s\nwithout %d\n%s%s", got.Code, got.Stdout, got.Stderr,
					want.Code, want.Stdout, want.Stderr)
			}
		})
	}
}

// TestOtherCLibrary: a program has another C library than the driver, as in a container. The
// library is preloaded there too, and look-ups find their functions.
func TestOtherCLibrary(t *testing.T) {
	t.Parallel()
	env := preload(t)
	program := filepath.Join(t.TempDir(), "musl")
	if r := rig.Run(t, bounded.Command(t, rig.Patience, "musl-gcc", "-D_GNU_SOURCE", "-rdynamic", "-o", program, "testdata/musl.c")); r.Code != 0 {
		t.Fatalf("musl-gcc: %s", r.Stderr)
	}
	want, err := runOrdinary(rig.Patience, t.TempDir(), nil, program)
	if err != nil || want.code != 0 || strings.Count(want.stdout, ": found") != 8 {
		t.Fatalf("%v, without the preload %+v", err, want)
	}
	for _, off := range []string{"0", "1"} {
		got, err := runOrdinary(rig.Patience, t.TempDir(), append(slices.Clone(env), "GPUARB_DISABLE="+off), program)
		if err != nil || got != want {
			t.Errorf("%v, with the preload %+v, without %+v", err, got, want)
		}
	}
}

// otherName returns the path of a copy of the driver under another name.
func otherName(t *testing.T, m *rig.Machine) string {
	t.Helper()
	path := filepath.Join(m.Dir, "vendor.so")
	copyFile(t, rig.Build(t, "sim/libcuda.so.1"), path)
	return path
}

// TestDriverByEveryNameIsCaught: the driver is caught under whatever name it is opened, and in whichever way
// its functions are looked up.
func TestDriverByEveryNameIsCaught(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	for _, name := range []string{"libcuda.so.1", "libcuda.so", rig.Build(t, "sim/libcuda.so.1"), otherName(t, m)} {
		for _, how := range []string{"plain", "version", "oldest", "default", "deepdefault", "again"} {
			t.Run(how+"/"+filepath.Base(name), func(t *testing.T) {
				p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/loader"), "drive", name, how))
				p.Want("alloc 1048575", "ok")
				p.Want("alloc 2", "err 2")
				p.Want("alloc 1", "ok")
				if total := m.SimNumber("total", "0"); total != 1<<20 {
					t.Errorf("the driver holds %d bytes, want the budget", total)
				}
				p.End()
			})
		}
	}
}

// TestWhatPassesTheShimIsSeen: a library opened with RTLD_DEEPBIND has libc's dlsym, and
// a namespace of its own has its own driver. Memory that is allocated through them is not admitted. It is still counted, as
// the process's unmanaged use or as overhead of its lease, and no longer granted to other programs. If a reading shows the context before
// the allocation, the allocation counts as excess, and is committed to the budget instead of lowering the capacity.
func TestWhatPassesTheShimIsSeen(t *testing.T) {
	t.Parallel()
	const (
		taken   = 3 << 20
		context = 64 << 20 // SIMCUDA_CONTEXT_BYTES
	)
	for _, how := range []string{"deep", "namespace", "mixed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
			capacity := m.Snapshot().Devices[0].Capacity
			p := m.Interact(m.Gpuarb("run", "--memory", "1M", "--", rig.Build(t, "programs/loader"), "drive", "libcuda.so.1", how))
			p.Want(fmt.Sprint("alloc ", taken), "ok")
			pid := p.PID()
			rig.Eventually(t, "the daemon counts the memory that bypassed the shim", func() bool {
				s := m.Snapshot()
				return passed(s, pid, how == "mixed") == taken+context && s.Devices[0].Capacity-s.Devices[0].Committed == capacity-taken-context
			})
			p.End()
			rig.Eventually(t, "all can be granted again", func() bool {
				return m.Snapshot().Devices[0].Capacity == capacity
			})
		})
	}
}

// passed returns the bytes that a process uses on the first device without an admission: the overhead of its lease if it has a lease, else
// its unmanaged memory. It returns 0 if the daemon does not show these bytes, or shows admitted bytes or a lease that should not exist.
func passed(s figures.Snapshot, pid int, leased bool) accounting.Bytes {
	if leased {
		i := slices.IndexFunc(s.Leases, func(l figures.LeaseState) bool { return l.PID == pid })
		if i < 0 || s.Leases[i].Used != 0 {
			return 0
		}
		return s.Leases[i].Overhead
	}
	i := slices.IndexFunc(s.Devices[0].UnmanagedBy, func(u figures.UnmanagedState) bool { return u.PID == pid })
	if i < 0 || len(s.Leases) != 0 {
		return 0
	}
	return s.Devices[0].UnmanagedBy[i].Bytes
}
