package structure

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// This file has the table of forbidden imports, with a reason for each, and checks the packages against it.

// ban is a rule about forbidden imports. It applies to shipped code only, because a test
// may import what it needs.
type ban struct {
	from   string   // these packages, "" for all
	but    []string // except these
	what   []string // may not import these or anything below them
	allow  []string // except these
	reason string
}

var bans = []ban{
	{from: "accounting", what: []string{module}, reason: "the ledger is a leaf"},
	{
		from: "internal/figures", what: []string{module}, allow: []string{module + "/accounting"},
		reason: "what users are shown depends on nobody who fills it in or prints it",
	},
	{from: "ipc", what: []string{module}, reason: "the wire is a leaf: it knows bytes, not policy"},
	{
		from: "cmd/gpuarb/top", what: []string{module}, allow: []string{module + "/accounting", module + "/internal/figures", module + "/internal/report"},
		reason: "the screen is a value over a snapshot: it knows neither the wire nor a daemon",
	},
	{from: "internal/events", what: []string{module}, reason: "the history is a leaf: whoever decides fills its lines in"},
	{from: "internal/faults", what: []string{module}, reason: "everybody may name a place to die"},
	{
		from: "internal/statefile", what: []string{module}, allow: []string{module + "/internal/faults"},
		reason: "the surviving mapping decides nothing",
	},
	{from: "internal/version", what: []string{module}, reason: "everybody may name the version"},
	{from: "internal/procfacts", what: []string{module}, reason: "everybody may ask the kernel about a process"},
	{
		from: "cmd/gpuarb/container", what: []string{module}, allow: []string{module + "/ipc", module + "/shim"},
		reason: "what a container is given is files and variables",
	},
	{
		from: "cmd/gpuarb/preload", what: []string{module}, allow: []string{module + "/internal/procfacts"},
		reason: "it writes the system's files, with a daemon or without one",
	},
	{
		from: "cmd/gpuarb/doctor", what: []string{module},
		allow:  []string{module + "/accounting", module + "/internal/figures", module + "/cmd/gpuarb/preload", module + "/internal/procfacts", module + "/internal/report", module + "/shim", module + "/internal/version"},
		reason: "it is told what the daemon says, and asks nobody",
	},
	{
		from: "arbiter", what: []string{module},
		allow: []string{module + "/accounting", module + "/internal/figures", module + "/arbiter/permit", module + "/arbiter/pressure",
			module + "/arbiter/reading", module + "/arbiter/rules", module + "/arbiter/threads",
			module + "/arbiter/usage", module + "/arbiter/wording"},
		reason: "the policy knows the ledger and nothing else, so that a table can test it",
	},
	{
		from: "daemon/history", what: []string{module}, allow: []string{module + "/accounting", module + "/arbiter", module + "/daemon/fair", module + "/internal/events"},
		reason: "what was decided is told whoever asked for it, and by whatever way",
	},
	{from: "daemon/fair", what: []string{module}, reason: "whose turn it is depends on nothing that is asked for"},
	{
		from: "arbiter/reading", what: []string{module}, allow: []string{module + "/accounting"},
		reason: "what figures tell depends on nobody's limits",
	},
	{from: "arbiter/pressure", what: []string{module}, reason: "for how long states held depends on nobody's reasons"},
	{from: "arbiter/usage", what: []string{module}, allow: []string{module + "/accounting"}, reason: "sums over time depend on nobody's reasons"},
	{from: "arbiter/threads", what: []string{module}, reason: "who made what depends on nobody's slots"},
	{from: "arbiter/permit", what: []string{module}, reason: "who may have a permit follows from who has one, by whatever names"},
	{
		from: "arbiter/rules", what: []string{module}, allow: []string{module + "/accounting", module + "/arbiter/wording"},
		reason: "which limits follow from a rule depends on nobody who holds or waits",
	},
	{
		from: "arbiter/wording", what: []string{module}, allow: []string{module + "/accounting"},
		reason: "sentences are filled in by who decides",
	},
	{
		from: "internal/config", what: []string{module}, allow: []string{module + "/accounting", module + "/arbiter/rules"},
		reason: "a file is checked without anybody who asks for anything",
	},
	{
		from: "accounting", what: []string{"os", "net", "syscall", "golang.org/x/sys", "log"},
		reason: "the ledger is sums, without input or output",
	},
	{
		from: "arbiter", what: []string{"os", "net", "syscall", "golang.org/x/sys", "log"},
		reason: "events come in as arguments and decisions go out as values",
	},
	{
		from: "gpufs", what: []string{module + "/ipc", module + "/shim", "net"},
		reason: "the filesystem answers from memory and never talks to a socket",
	},
	{
		from: "internal/report", what: []string{module}, allow: []string{module + "/accounting", module + "/internal/figures", module + "/archive/rows"},
		reason: "filesystem and command line print the same snapshot",
	},
	{
		from: "web", what: []string{module}, allow: []string{module + "/accounting", module + "/archive/rows", module + "/internal/figures", module + "/ipc", module + "/internal/report", module + "/internal/worker", module + "/web"},
		reason: "the page is a client of the socket, and knows no more than others",
	},
	{from: "internal/worker", what: []string{module}, allow: []string{module + "/ipc"}, reason: "what starts a process does not know what that does"},
	{from: "archive/rows", what: []string{module, "modernc.org", "database/sql"}, reason: "the command reads rows without the store that keeps them"},
	{
		from: "archive", what: []string{module}, allow: []string{module + "/archive", module + "/internal/worker"},
		reason: "the history is a file of rows, and knows nobody who makes them",
	},
	{
		but: []string{"archive"}, what: []string{"modernc.org", "database/sql"},
		reason: "one package knows in what the history is kept",
	},
	{
		from: "cmd/gpuarb", what: []string{module + "/archive"}, allow: []string{module + "/archive/rows"},
		reason: "the command asks the history over its socket, and links no store",
	},
	{
		but: []string{"web"}, what: []string{"net/http"},
		reason: "what is of the network stays in a process without privileges",
	},
	{
		from: "daemon", what: []string{module + "/web", module + "/archive"}, allow: []string{module + "/archive/rows"},
		reason: "the daemon starts the processes of the page and of the history, and has nothing of them in it",
	},
	{
		but: []string{"cmd", "daemon"}, what: []string{module + "/daemon"},
		reason: "the daemon composes the parts; no part knows who uses it",
	},
	{what: []string{module + "/cmd"}, allow: []string{module + "/cmd/gpuarb/container", module + "/cmd/gpuarb/doctor", module + "/cmd/gpuarb/preload", module + "/cmd/gpuarb/spawn", module + "/cmd/gpuarb/top"}, reason: "a command has no logic that others could want"},
	{
		from: "cmd/gpuarb", what: []string{module + "/daemon", module + "/gpufs", module + "/daemon/inventory"},
		reason: "the command speaks over the socket, and is one static file",
	},
	{
		but: []string{"cmd/gpuarb/top"}, what: []string{"charm.land"},
		reason: "one importer for the library that draws on terminals",
	},
	{
		but: []string{"gpufs"}, what: []string{"github.com/hanwen/go-fuse"},
		reason: "one importer for each library that talks to the system",
	},
	{
		but: []string{"daemon/inventory"}, what: []string{"github.com/NVIDIA/go-nvml"},
		reason: "one importer for each library that talks to the system",
	},
	{
		but: []string{"daemon/inventory", "web"}, what: []string{"github.com/vishvananda/netlink"},
		reason: "processes that start or end, and whose a connection is; nothing else is asked of the kernel by netlink",
	},
	{
		but: []string{"internal/procfacts"}, what: []string{"github.com/prometheus/procfs"},
		reason: "one importer for each library that talks to the system",
	},
	{
		but: []string{"daemon/metrics"}, what: []string{"github.com/prometheus/client_golang", "github.com/prometheus/common"},
		reason: "one package knows in what format metrics are written",
	},
	{
		from: "daemon/metrics", what: []string{module}, allow: []string{module + "/accounting", module + "/internal/figures"},
		reason: "metrics are made of a snapshot, whoever shows them",
	},
	{but: []string{"daemon/inventory", "cmd/gpuarb/spawn"}, what: []string{"C"}, reason: "cgo stays where the vendor's library is, and what runs before Go's runtime"},
	{but: []string{"cmd/gpuarb"}, what: []string{module + "/cmd/gpuarb/spawn"}, reason: "one package starts the programs of users"},
	{
		what: []string{
			module + "/tests", module + "/tools", "testing", "net/http/httptest", "go.uber.org/goleak",
			"pgregory.net/rapid", "github.com/NVIDIA/go-nvml/pkg/nvml/mock",
		},
		reason: "what users run contains no test equipment",
	},
}

func (b ban) covers(p pkg) bool {
	for _, dir := range b.but {
		if within(p.path(), dir) {
			return false
		}
	}
	return b.from == "" || within(p.path(), b.from)
}

func (b ban) forbids(imported string) bool {
	for _, dir := range b.allow {
		if within(imported, dir) {
			return false
		}
	}
	for _, dir := range b.what {
		if within(imported, dir) {
			return true
		}
	}
	return false
}

// TestImports: no package imports what the table of bans forbids.
func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		if !p.shipped() {
			continue
		}
		for _, b := range bans {
			if !b.covers(p) {
				continue
			}
			for _, imported := range p.Imports {
				if b.forbids(imported) {
					t.Errorf("%s imports %s: %s", p.path(), imported, b.reason)
				}
			}
		}
	}
}

// TestBans tests the rules themselves with a few imports that they must refuse.
func TestBans(t *testing.T) {
	tests := []struct {
		from, imported string
		forbidden      bool
	}{
		{"accounting", module + "/ipc", true},
		{"accounting", "math", false},
		{"arbiter", module + "/accounting", false},
		{"arbiter", module + "/ipc", true},
		{"arbiter", "time", false},
		{"arbiter", module + "/arbiter/rules", false},
		{"arbiter", module + "/arbiter/wording", false},
		{"arbiter/rules", module + "/arbiter", true},
		{"arbiter/rules", module + "/arbiter/permit", true},
		{"arbiter/rules", module + "/arbiter/wording", false},
		{"arbiter/wording", module + "/arbiter/rules", true},
		{"internal/config", module + "/arbiter", true},
		{"internal/config", module + "/arbiter/rules", false},
		{"arbiter/permit", "iter", false},
		{"arbiter/permit", module + "/arbiter", true},
		{"arbiter/permit", "iter", false},
		{"arbiter/permit", module + "/accounting", true},
		{"gpufs", "github.com/hanwen/go-fuse/v2/fs", false},
		{"daemon", "github.com/hanwen/go-fuse/v2/fs", true},
		{"daemon/inventory", "github.com/NVIDIA/go-nvml/pkg/nvml", false},
		{"daemon/inventory", "github.com/NVIDIA/go-nvml/pkg/nvml/mock", true},
		{"daemon/inventory", "github.com/prometheus/procfs", true},
		{"internal/procfacts", "github.com/prometheus/procfs", false},
		{"ipc", module + "/internal/procfacts", true},
		{"cmd/gpuarbd", module + "/daemon", false},
		{"cmd/gpuarb", module + "/daemon", true},
		{"shim", module + "/ipc", false},
		{"shim", module + "/tests/simcuda", true},
		{"ipc", "C", true},
		{"web", module + "/ipc", false},
		{"web", module + "/daemon", true},
		{"daemon", module + "/web", true},
		{"daemon", module + "/internal/worker", false},
		{"daemon", module + "/archive", true},
		{"daemon", module + "/archive/rows", false},
		{"cmd/gpuarb", module + "/archive", true},
		{"cmd/gpuarbd", module + "/archive", false},
		{"archive", "modernc.org/sqlite", false},
		{"archive/rows", "modernc.org/sqlite", true},
		{"daemon", "net/http", true},
	}
	for _, test := range tests {
		p := pkg{ImportPath: module + "/" + test.from}
		forbidden := false
		for _, b := range bans {
			forbidden = forbidden || b.covers(p) && b.forbids(test.imported)
		}
		if forbidden != test.forbidden {
			t.Errorf("%s imports %s: forbidden = %v, want %v", test.from, test.imported, forbidden, test.forbidden)
		}
	}
}

// source reports whether a file is compiled into what users install.
func source(name string) bool {
	switch path.Ext(name) {
	case ".c", ".h", ".S", ".def", ".map":
	case ".go":
		if strings.HasSuffix(name, "_test.go") {
			return false
		}
	default:
		return false
	}
	for _, dir := range strings.Split(path.Dir(name), "/") {
		switch dir {
		case "tests", "test", "bench", "tools", "testdata", "cshimtest":
			return false
		}
	}
	return true
}

// TestNoWordOfTheSimulatedDriver: shipped code does not mention the simulated driver.
func TestNoWordOfTheSimulatedDriver(t *testing.T) {
	for _, name := range files(t) {
		if source(name) && strings.Contains(strings.ToLower(read(t, name)), "simcuda") {
			t.Errorf("%s mentions the simulated driver: what works only with it would pass every test", name)
		}
	}
}

var (
	include = regexp.MustCompile(`(?m)^\s*#\s*include\s*([<"])([^>"]+)[>"]`)
	vendors = regexp.MustCompile(`^(cuda|nvml|nvrtc|cu\w+\.h|hip/|level_zero/|CL/|vulkan/)`)
)

// TestShimIncludes: the shim is built without vendors' headers, and includes its own files by their package's path.
func TestShimIncludes(t *testing.T) {
	own := make(map[string]bool)
	for _, name := range files(t) {
		own[name] = true
	}
	for _, name := range files(t) {
		if !within(name, "cshim") || !source(name) {
			continue
		}
		for _, m := range include.FindAllStringSubmatch(read(t, name), -1) {
			quoted, header := m[1] == `"`, m[2]
			if quoted && !own[path.Join("cshim", header)] && !own[path.Join(path.Dir(name), header)] {
				t.Errorf("%s includes %q, which is no file of the shim", name, header)
			}
			if !quoted && vendors.MatchString(header) {
				t.Errorf("%s includes <%s>: the shim has declarations of its own", name, header)
			}
		}
	}
}
