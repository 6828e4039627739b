package structure

import (
	"debug/elf"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file checks which parts of the shim use which. cycle_test.go does so for Go packages.

// The shim's packages, and the other packages that each may use. Every package may use the core.
var shimPackages = map[string][]string{
	"core":   nil,
	"hook":   nil, // except its list of the interfaces
	"memory": {"hook"},
	"cuda":   {"hook", "memory"},
	"nvml":   {"hook"},
	"opencl": {"hook"},
	"vulkan": {"hook"},
}

// The only file that may use all interfaces: it lists them.
const interfaces = "hook/interfaces"

// unit is a .c file with its .h file, named by its path below cshim/ without an extension.
type unit struct {
	text    string          // content of its files
	uses    map[string]bool // units that it includes, or whose symbols its object needs
	defines []string
	lacks   []string // symbols that other units define
}

var quoted = regexp.MustCompile(`(?m)^\s*#\s*include\s+"([^"]+)\.h"`)

// shim reads the units, and the objects that were built from them.
func shim(t *testing.T) map[string]*unit {
	t.Helper()
	units := make(map[string]*unit)
	var compiled []string
	for _, name := range files(t) {
		below, ok := strings.CutPrefix(name, "cshim/")
		folder, _, _ := strings.Cut(below, "/")
		if _, known := shimPackages[folder]; !ok || !known {
			continue
		}
		id := strings.TrimSuffix(below, path.Ext(below))
		if ext := path.Ext(name); ext != ".c" && ext != ".h" {
			id = below // a table, such as hooks.def, is a unit by itself
		} else if ext == ".c" {
			compiled = append(compiled, id)
		}
		if units[id] == nil {
			units[id] = &unit{uses: make(map[string]bool)}
		}
		units[id].text += read(t, name)
	}
	for id, u := range units {
		for _, m := range quoted.FindAllStringSubmatch(u.text, -1) {
			if m[1] != id {
				u.uses[m[1]] = true
			}
		}
	}
	definedIn := make(map[string]string)
	for _, id := range compiled {
		units[id].defines, units[id].lacks = symbols(t, id)
		for _, symbol := range units[id].defines {
			definedIn[symbol] = id
		}
	}
	for _, id := range compiled {
		for _, symbol := range units[id].lacks {
			if by, ok := definedIn[symbol]; ok {
				units[id].uses[by] = true
			}
		}
	}
	return units
}

// symbols returns the symbols that an object defines, and the undefined ones that it needs.
func symbols(t *testing.T, id string) (defines, lacks []string) {
	t.Helper()
	object, err := elf.Open(root + "/build/cshim/" + id + ".o")
	if err != nil {
		t.Fatalf("%v: run make test-build first", err)
	}
	defer object.Close()
	all, err := object.Symbols()
	if err != nil {
		t.Fatalf("%s.o: %v", id, err)
	}
	for _, symbol := range all {
		switch {
		case elf.ST_BIND(symbol.Info) == elf.STB_LOCAL:
		case symbol.Section == elf.SHN_UNDEF:
			lacks = append(lacks, symbol.Name)
		default:
			defines = append(defines, symbol.Name)
		}
	}
	return defines, lacks
}

// packageOf returns the package of a unit: the first folder of its path.
func packageOf(id string) string {
	folder, _, _ := strings.Cut(id, "/")
	return folder
}

// TestImportsOfTheShim: code for one interface is used neither by the core nor by code for another interface.
func TestImportsOfTheShim(t *testing.T) {
	for id, u := range shim(t) {
		for other := range u.uses {
			from, to := packageOf(id), packageOf(other)
			if _, known := shimPackages[to]; !known {
				t.Errorf("%s uses %s, which is in no package of the shim", id, other)
			} else if from != to && to != "core" && id != interfaces && !slices.Contains(shimPackages[from], to) {
				t.Errorf("%s uses %s, but %s must not use %s", id, other, from, to)
			}
		}
	}
}

// The core, and the code that interfaces share, must not mention a vendor's interface in names or comments, because their readers
// need not know any.
var vendorsWords = regexp.MustCompile(`(?i)cuda|nvml|opencl|vulkan|\bcu_|_cu_|\b(?-i:cu[A-Z])`)

// TestSharedPackagesNameNoInterface checks the text and the symbols of the shared packages for vendors' words.
func TestSharedPackagesNameNoInterface(t *testing.T) {
	for id, u := range shim(t) {
		if folder := packageOf(id); folder != "core" && folder != "memory" {
			continue
		}
		for _, line := range strings.Split(u.text, "\n") {
			if word := vendorsWords.FindString(line); word != "" {
				t.Errorf("%s: %q in: %s", id, word, strings.TrimSpace(line))
			}
		}
		for _, symbol := range append(u.defines, u.lacks...) {
			if vendorsWords.MatchString(symbol) {
				t.Errorf("%s: the symbol %s", id, symbol)
			}
		}
	}
}

// cycles returns the groups of units that depend on each other: the strongly connected components with more than one unit
// (Tarjan's algorithm).
func cycles(units map[string]*unit) [][]string {
	index, low := make(map[string]int), make(map[string]int)
	var stack []string
	var found [][]string
	var visit func(id string)
	visit = func(id string) {
		index[id], low[id] = len(index)+1, len(index)+1
		stack = append(stack, id)
		for other := range units[id].uses {
			if units[other] == nil {
				continue
			}
			if index[other] == 0 {
				visit(other)
				low[id] = min(low[id], low[other])
			} else if slices.Contains(stack, other) {
				low[id] = min(low[id], index[other])
			}
		}
		if low[id] == index[id] {
			at := slices.Index(stack, id)
			if cycle := slices.Clone(stack[at:]); len(cycle) > 1 {
				slices.Sort(cycle)
				found = append(found, cycle)
			}
			stack = stack[:at]
		}
	}
	for _, id := range slices.Sorted(maps.Keys(units)) {
		if index[id] == 0 {
			visit(id)
		}
	}
	return found
}

// TestNoCycleInTheShim: the units of the shim do not depend on each other in a cycle.
func TestNoCycleInTheShim(t *testing.T) {
	for _, cycle := range cycles(shim(t)) {
		t.Errorf("these units depend on each other: %s", strings.Join(cycle, ", "))
	}
}

// TestCyclesAreFound: cycles finds two units that use each other, and a cycle of three.
func TestCyclesAreFound(t *testing.T) {
	units := make(map[string]*unit)
	for id, uses := range map[string][]string{
		"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"e", "f"}, "e": {"c"}, "f": {"nowhere"},
	} {
		units[id] = &unit{uses: make(map[string]bool)}
		for _, other := range uses {
			units[id].uses[other] = true
		}
	}
	found := cycles(units)
	slices.SortFunc(found, slices.Compare)
	if want := [][]string{{"a", "b"}, {"c", "d", "e"}}; !slices.EqualFunc(found, want, slices.Equal) {
		t.Errorf("cycles: %v, want %v", found, want)
	}
}
