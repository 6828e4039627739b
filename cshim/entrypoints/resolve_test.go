package entrypoints

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file shows that under the shim each way to look a function up returns what the driver returns, or the
// wrapper of that function. The drivers are built from the maps of measured drivers by fake_test.go;
// libcuda_test.go asks real ones.

// patience is the time limit of a walk; no result depends on it.
const patience = 3 * time.Minute

// oddNames lists names that no driver has, or only one driver has.
var oddNames = []string{
	"cuMemAlloc_v9", "cuMemAllocate", "cuDlsym", "malloc", "dlsym", "cu", "cumemalloc", "cuMemAlloc-",
	"cuMemAlloc_v2_ptsz", strings.Repeat("cuMemAlloc", 300),
}

// versionsOf returns the versions worth asking for: where answers change, and the versions beside.
func versionsOf(answers resolves) []int {
	all := []int{-1 << 31, -2, 0, 1, 1999, 2000, 12999, 13000, 13040, 99999, 1<<31 - 1, -1}
	for _, flags := range answers {
		for _, s := range slices.Concat(flags[0], flags[1], flags[2]) {
			n, _ := strconv.Atoi(s.version)
			all = append(all, n-1, n, n+1)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// walk is a folder with the asking program (cshim/test/walk.c) and its questions.
type walk struct {
	t                  *testing.T
	program, questions string
	names              []string
	versions           []int
}

func newWalk(t *testing.T, names []string, answers resolves) *walk {
	t.Helper()
	dir := t.TempDir()
	w := &walk{t, filepath.Join(dir, "walk"), filepath.Join(dir, "questions"), nil, versionsOf(answers)}
	compile(t, "-std=c11", "-D_GNU_SOURCE", "-o", w.program, filepath.FromSlash("../test/walk.c"), "-ldl")
	w.names = slices.Concat(names, oddNames, slices.Collect(maps.Keys(answers)))
	slices.Sort(w.names)
	w.names = append(slices.Compact(w.names), "")
	text := "versions"
	for _, v := range w.versions {
		text += fmt.Sprint(" ", v)
	}
	write(t, w.questions, text+"\n"+strings.Join(w.names, "\n")+"\n")
	return w
}

// run asks a driver all questions, with the shim or without.
func (w *walk) run(driver, how string, preload bool) []string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, how, w.questions)
	cmd.Env = []string{"LD_LIBRARY_PATH=" + driver}
	if preload {
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+shim(w.t))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("walk %s: %v\n%.2000s", how, err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func shim(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.FromSlash("../../build/libgpuarb.so"))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: run make first", err)
	}
	return path
}

// compare checks the answers with the shim: each is the driver's answer, or the wrapper of that
// function; and enough functions are wrapped.
func compare(t *testing.T, hooked map[string]bool, bare, shimmed []string, least int) {
	t.Helper()
	wrapped := 0
	if len(bare) != len(shimmed) {
		t.Errorf("%d answers, want %d", len(shimmed), len(bare))
	}
	for i := range min(len(bare), len(shimmed)) {
		want := bare[i]
		before, symbol, found := strings.Cut(want, "driver:")
		switch {
		case found && hooked[symbol]:
			want = before + "shim:" + symbol
			wrapped++
		case found && symbol == "cuInit": // its wrapper is not exported: the success of cuInit shows which copy of the driver works
			want = before + "shim:inside"
		}
		if shimmed[i] != want {
			t.Fatalf("under the shim %q, want %q", shimmed[i], want)
		}
	}
	if wrapped < least {
		t.Errorf("%d answers of %d are wrapped, want %d at least", wrapped, len(bare), least)
	}
}

// TestResolverAnswersAsTheDriver asks for every name, version and flags of three measured drivers.
func TestResolverAnswersAsTheDriver(t *testing.T) {
	t.Parallel()
	hooked := readTable(t).hooked
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			answers := readMap(t, mapOf(driver))
			dir := fake(t, driver)
			w := newWalk(t, exports(inventory(t), driver), answers)
			ways := []string{"dlsym", "dlvsym", "gpa"}
			if driver != "555" {
				ways = ways[:1] // the answers do not depend on how the resolver was found
			}
			for _, how := range ways {
				bare := w.run(dir, how, false)
				checkMap(t, answers, bare)
				compare(t, hooked, bare, w.run(dir, how, true), 100)
			}
		})
	}
}

// TestResolverOfNewerDrivers uses the published facts about the drivers of CUDA 13, which were not
// measured, and an invented driver. A version with a wrapper must lead to that wrapper. An unknown
// version must lead to the driver's own function.
func TestResolverOfNewerDrivers(t *testing.T) {
	t.Parallel()
	answers := readMap(t, mapOf("555"))
	for _, newer := range []string{"13", "future"} {
		for name, flags := range readMap(t, filepath.Join("testdata", "resolve-"+newer+".tsv")) {
			steps := answers[name]
			for i := range flags {
				if len(flags[i]) > 0 {
					steps[i] = flags[i]
				}
			}
			answers[name] = steps
		}
	}
	exported := slices.Concat(exports(inventory(t), "555"), answers.symbols())
	slices.Sort(exported)
	exported = slices.Compact(exported)
	dir := fakeOf(t, answers, exported)
	w := newWalk(t, exported, answers)
	bare, shimmed := w.run(dir, "gpa", false), w.run(dir, "gpa", true)
	checkMap(t, answers, bare)
	compare(t, readTable(t).hooked, bare, shimmed, 100)
	all := strings.Join(shimmed, "\n") + "\n"
	for _, symbol := range []string{"shim:cuCtxSynchronize_v2", "shim:cuMemGetDefaultMemPool", "shim:cuMemGetMemPool",
		"shim:cuMemAlloc_v2", "driver:cuMemAlloc_v3", "driver:cuGraphAddNode_v3", "driver:cuTileReserve"} {
		if !strings.Contains(all, symbol+"\n") {
			t.Errorf("no version and no flags are answered with %s", symbol)
		}
	}
}

// checkMap compares a driver's answers without the shim with its map.
func checkMap(t *testing.T, answers resolves, bare []string) {
	t.Helper()
	got := map[string][]step{}
	for _, line := range bare {
		f := strings.Fields(line)
		if len(f) != 7 || f[0] != "v2" {
			continue
		}
		if version, _ := strconv.Atoi(f[3]); version < 2000 {
			continue
		}
		symbol := fmt.Sprintf("!r%s,st%s", f[4], f[5])
		if f[6] != "-" {
			symbol = strings.TrimPrefix(f[6], "driver:")
		}
		got[f[1]+" "+f[2]] = append(got[f[1]+" "+f[2]], step{f[3], symbol})
	}
	for name, steps := range answers {
		for flags := range steps {
			if key := fmt.Sprint(name, " ", flags); !slices.Equal(got[key], merged(steps[flags])) {
				t.Errorf("%s: the driver answers %v, want %v", key, got[key], merged(steps[flags]))
			}
		}
	}
}

// merged leaves out steps that change nothing.
func merged(steps []step) []step {
	return slices.CompactFunc(slices.Clone(steps), func(a, b step) bool { return a.symbol == b.symbol })
}
