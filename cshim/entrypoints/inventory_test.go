package entrypoints

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file shows that no function of the measured drivers that acquires or releases something was forgotten:
// each is wrapped, or has a reason in testdata/inventory.tsv that is checked here. opencl_test.go does so for
// OpenCL, and table_test.go reads the tables.

// kind maps a class of the inventory to the kind of object that it acquires or releases.
var kind = map[string]string{
	"device-alloc": "memory", "device-free": "memory", "async-alloc": "memory", "async-free": "memory",
	"managed-alloc": "memory", "array": "memory", "mipmap": "memory", "vmm-create": "memory",
	"vmm-map": "memory", "vmm-release": "memory", "pool": "memory", "graph-mem": "memory",
	"import": "memory", "ipc": "memory", "external-memory": "memory",
	"host-alloc": "memory", "host-free": "memory",
	"stream-create": "stream", "stream-destroy": "stream",
	"ctx-create": "context", "ctx-destroy": "context", "primary-ctx": "context", "green-ctx": "context",
	"mem-query": "", "other": "", "resolver": "", "checkpoint": "", "event": "", "launch": "",
	"module": "", "passthrough": "",
}

// gives lists the classes whose functions release something: the library must see every release of
// what it charges.
var gives = []string{"device-free", "async-free", "host-free", "vmm-release", "stream-destroy", "ctx-destroy"}

// charging tells for each way to know a row's bytes whether the row charges them.
var charging = map[string]bool{
	"argument":   true,  // a parameter has the number
	"descriptor": true,  // computed from a structure that a parameter points to
	"pitch":      true,  // width times height, corrected by the driver's pitch
	"nodes":      true,  // sum of a graph's allocation nodes
	"one":        true,  // counted: a stream or a context
	"entry":      false, // releases the bytes of the entry
	"reference":  false, // adds or releases a reference to charged memory
	"answer":     false, // changes the driver's answer
	"none":       false,
}

// taking matches the names of functions that might acquire something.
var taking = regexp.MustCompile(`Alloc|Create|Reserve|Import|Open|Retain|Register|Load|Instantiate|Launch|Upload|` +
	`Prefetch|Commit|MemMap|Grow|Resize|Acquire|Attach`)

// cuda reports whether a function belongs to the driver API.
func cuda(symbol string) bool {
	return len(symbol) > 2 && strings.HasPrefix(symbol, "cu") && symbol[2] >= 'A' && symbol[2] <= 'Z'
}

// reasons lists all reasons for not wrapping a function, with the condition of each.
var reasons = map[string]func(table, function) bool{
	// Another, wrapped row charges the bytes that this function passes on or maps.
	"charged": func(tab table, f function) bool {
		by := tab.takes[f.passes.by]
		return tab.hooked[f.passes.by] && charging[by.bytes] && (kind[f.class] == "" || kind[f.class] == by.class ||
			kind[f.class] == "context" && by.class == "stream")
	},
	// The function reads or sets something, and acquires nothing.
	"tells": func(_ table, f function) bool {
		return strings.HasPrefix(f.acquires, "none") || f.class == "passthrough" || f.class == "mem-query"
	},
	// The function's code, stacks and queues are overhead of the process, which the device's own
	// figure contains.
	"overhead": func(_ table, f function) bool {
		return slices.Contains([]string{"module", "launch", "event", "mem-query", "other"}, f.class) ||
			f.class == "ipc" && strings.Contains(f.symbol, "Event")
	},
	// The bytes belong to another API, or to the process that exported them.
	"foreign": func(_ table, f function) bool {
		return f.class == "external-memory" || f.class == "passthrough" && strings.Contains(f.symbol, "GL")
	},
	// The function makes an object in host memory.
	"object": func(_ table, f function) bool { return f.class == "passthrough" },
	// Another process's memory moves to the host and back; its charge stays.
	"checkpoint": func(_ table, f function) bool { return f.class == "checkpoint" },
	// The function makes objects without a name. The first call that shows such a context notices it.
	"nameless": func(_ table, f function) bool { return f.symbol == "cuGetExportTable" },
	// A function of the loader: the library finds the opened object when a symbol in it is looked up.
	"loader": func(_ table, f function) bool {
		return f.class == "resolver" && strings.HasPrefix(f.symbol, "dl")
	},
	// The function belongs to no interface that the library intercepts.
	"another": func(_ table, f function) bool {
		return !cuda(f.symbol) && !strings.HasPrefix(f.symbol, "nvml") && !strings.HasPrefix(f.symbol, "dl")
	},
}

// TestTableIsWhole checks that each function of the inventory is wrapped, or has a valid reason not
// to be.
func TestTableIsWhole(t *testing.T) {
	tab, all := readTable(t), inventory(t)
	for _, symbol := range slices.Sorted(maps.Keys(all)) {
		f := all[symbol]
		passes := f.passes != pass{}
		wrapped := tab.hooked[symbol] || symbol == "dlsym" || symbol == "dlvsym"
		switch {
		case kind[f.class] == "" && !knownClass(f.class):
			t.Errorf("%s: no class %s is known", symbol, f.class)
		case wrapped && passes:
			t.Errorf("%s is wrapped and passes", symbol)
		case wrapped:
		case passes:
			checkPass(t, tab, f)
		case f.class != "passthrough" || taking.MatchString(symbol):
			t.Errorf("%s (%s: %s) is neither wrapped nor passes for a reason", symbol, f.class, f.acquires)
		}
	}
	for _, list := range []map[string]bool{tab.hooked, tab.needed} {
		for symbol := range list {
			if _, known := all[symbol]; !known {
				t.Errorf("%s is in the table and in no inventory", symbol)
			}
		}
	}
	for _, symbol := range tab.twice {
		t.Errorf("%s is listed twice", symbol)
	}
}

func knownClass(class string) bool {
	_, known := kind[class]
	return known
}

func checkPass(t *testing.T, tab table, f function) {
	t.Helper()
	p := f.passes
	holds, known := reasons[p.reason]
	switch {
	case !known:
		t.Errorf("%s passes for %q, which is no reason", f.symbol, p.reason)
	case !holds(tab, f):
		t.Errorf("%s (%s: %s) passes for %q %s, which does not hold", f.symbol, f.class, f.acquires, p.reason, p.by)
	case (p.by != "") != (p.reason == "charged"):
		t.Errorf("%s passes for %q by %q", f.symbol, p.reason, p.by)
	case p.reason == "charged" || p.reason == "another":
	case kind[f.class] != "" && p.reason != "foreign" && p.reason != "tells" && p.reason != "overhead":
		t.Errorf("%s (%s) passes, and no wrapped row charges it", f.symbol, f.class)
	case p.reason == "tells" && kind[f.class] != "" && taking.MatchString(f.symbol) && !strings.Contains(f.symbol, "Get"):
		t.Errorf("%s (%s) only tells something, by a name like that", f.symbol, f.class)
	}
	if slices.Contains(gives, f.class) && p.reason != "another" {
		t.Errorf("%s (%s) gives something back, unseen", f.symbol, f.class)
	}
}

// TestWhatRowsTake checks that each wrapped row names its object and how its bytes are known, as
// the inventory does.
func TestWhatRowsTake(t *testing.T) {
	tab, all := readTable(t), inventory(t)
	for _, symbol := range slices.Sorted(maps.Keys(tab.hooked)) {
		f := all[symbol]
		takes := tab.takes[symbol]
		charges, bytes := charging[takes.bytes]
		switch {
		case takes.class == "":
			t.Errorf("%s says not what it takes: class %s, %s", symbol, f.class, f.acquires)
		case !slices.Contains([]string{"memory", "stream", "context", "resolver", "query"}, takes.class):
			t.Errorf("%s: %s is no class", symbol, takes.class)
		case !bytes:
			t.Errorf("%s: %s is not how bytes are known", symbol, takes.bytes)
		case kind[f.class] != "" && kind[f.class] != takes.class && f.class != "green-ctx":
			t.Errorf("%s is of class %s, and of %s in the inventory", symbol, takes.class, f.class)
		case slices.Contains(gives, f.class) && charges:
			t.Errorf("%s (%s) charges %s", symbol, f.class, takes.bytes)
		case strings.HasSuffix(f.class, "-alloc") && !charges && !strings.HasPrefix(f.class, "managed"):
			t.Errorf("%s (%s) charges nothing", symbol, f.class)
		}
	}
}

// unlisted returns the functions of a driver that the inventory lacks.
func unlisted(symbols []string, all map[string]function) (take, others []string) {
	for _, symbol := range symbols {
		if _, known := all[symbol]; known || !cuda(symbol) {
			continue
		}
		if taking.MatchString(symbol) {
			take = append(take, symbol)
		} else {
			others = append(others, symbol)
		}
	}
	return take, others
}

// TestDriversHoldNoStrangers checks that the inventory has all functions that a measured driver
// exports or answers.
func TestDriversHoldNoStrangers(t *testing.T) {
	all := inventory(t)
	for _, driver := range drivers {
		symbols := readMap(t, mapOf(driver)).symbols()
		if len(symbols) < 500 {
			t.Errorf("driver %s: a map of %d functions", driver, len(symbols))
		}
		take, others := unlisted(symbols, all)
		if len(take)+len(others) > 0 {
			t.Errorf("driver %s has %v and %v, which nobody has looked at", driver, take, others)
		}
		exported := exports(all, driver)
		for _, symbol := range symbols {
			if !slices.Contains(exported, symbol) {
				t.Errorf("driver %s answers with %s and does not export it", driver, symbol)
			}
		}
	}
}

// TestFutureFunctionIsNoticed gives the check a driver with new functions, some of which acquire
// memory.
func TestFutureFunctionIsNoticed(t *testing.T) {
	future := readMap(t, filepath.Join("testdata", "resolve-future.tsv"))
	take, others := unlisted(future.symbols(), inventory(t))
	if want := []string{"cuMemAllocStriped", "cuMemAllocStriped_ptsz", "cuMemAlloc_v3", "cuTileReserve"}; !slices.Equal(take, want) {
		t.Errorf("noticed %v, want %v", take, want)
	}
	if want := []string{"cuDeviceGetMood"}; !slices.Equal(others, want) {
		t.Errorf("also noticed %v, want %v", others, want)
	}
}
