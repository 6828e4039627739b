package entrypoints

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file has no test. It reads hooks.def, the inventory and the maps of drivers for the other files of this
// package.

// function is a line of the inventory.
type function struct {
	symbol, name, class string
	drivers             []string
	acquires, prototype string
	passes              pass
}

// takes has what a GA_HOOK row says of its function.
type takes struct{ class, bytes string }

// pass tells why a function is not wrapped. Zero value: the function is wrapped, or it is of class
// passthrough and has a name that does not suggest an acquisition (see taking).
type pass struct{ reason, by string }

// table has the rows of hooks.def of CUDA and NVML.
type table struct {
	hooked, needed map[string]bool
	takes          map[string]takes
	twice          []string
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func inventory(t testing.TB) map[string]function {
	t.Helper()
	all := map[string]function{}
	for line := range strings.Lines(read(t, filepath.Join("testdata", "inventory.tsv"))) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if f[0] == "symbol" {
			continue
		}
		if len(f) != 7 || all[f[0]].symbol != "" {
			t.Fatalf("inventory: %q", line)
		}
		reason, by, _ := strings.Cut(strings.TrimPrefix(f[5], "-"), " ")
		all[f[0]] = function{f[0], f[1], f[2], strings.Split(f[3], ","), f[4], f[6], pass{reason, by}}
	}
	return all
}

// row matches a line of hooks.def: its macro, the symbol, and in GA_HOOK the class and how the bytes are
// known.
var row = regexp.MustCompile(`(?m)^GA_(HOOK|NEED)\((\w+)(?:, (\w+))?(?:, (\w+))?`)

func readTable(t testing.TB) table {
	t.Helper()
	tab := table{map[string]bool{}, map[string]bool{}, map[string]takes{}, nil}
	seen := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(read(t, "../cuda/hooks.def")+read(t, "../nvml/hooks.def"), -1) {
		macro, symbol := m[1], m[2]
		if seen[macro+symbol] {
			tab.twice = append(tab.twice, symbol)
		}
		seen[macro+symbol] = true
		switch macro {
		case "HOOK":
			tab.hooked[symbol] = true
			tab.takes[symbol] = takes{m[3], m[4]}
		case "NEED":
			tab.needed[symbol] = true
		}
	}
	return tab
}

// resolves has the lines of a driver's map, by name and flags.
type resolves map[string][3][]step

// step is the answer of a driver from a version on: a symbol, or "!rR,stS" for return code R and status S
// without a symbol.
type step struct{ version, symbol string }

func readMap(t testing.TB, path string) resolves {
	t.Helper()
	all := resolves{}
	for line := range strings.Lines(read(t, path)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		flags := strings.Index("012", f[1])
		if len(f) < 3 || len(f[1]) != 1 || flags < 0 {
			t.Fatalf("%s: %q", path, line)
		}
		steps := all[f[0]]
		for _, s := range f[2:] {
			version, symbol, ok := strings.Cut(s, ":")
			if !ok {
				t.Fatalf("%s: %q", path, line)
			}
			steps[flags] = append(steps[flags], step{version, symbol})
		}
		all[f[0]] = steps
	}
	return all
}

// symbols returns the functions that a map contains as answers.
func (r resolves) symbols() []string {
	var all []string
	for _, flags := range r {
		for _, s := range slices.Concat(flags[0], flags[1], flags[2]) {
			if !strings.HasPrefix(s.symbol, "!") {
				all = append(all, s.symbol)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mapOf returns the file with a driver's map; the simulated driver is built from one of these
// files.
func mapOf(driver string) string {
	if driver == "555" {
		return filepath.FromSlash("../../tests/simcuda/data/resolve-555.tsv")
	}
	return filepath.Join("testdata", "resolve-"+driver+".tsv")
}

var drivers = []string{"535", "550", "555"}

// exports returns the functions that a measured driver exports.
func exports(all map[string]function, driver string) []string {
	var names []string
	for symbol, f := range all {
		if slices.Contains(f.drivers, driver) {
			names = append(names, symbol)
		}
	}
	slices.Sort(names)
	return names
}
