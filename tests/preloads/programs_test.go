package preloads

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file has no test. It builds the programs with each sanitizer, and lists the libraries and tools that
// beside_test.go and beside_full_test.go put beside the shim.

// build is a way to compile the programs.
type build struct {
	name  string
	flags string // the compiler first
	early string // the library that must come before the shim in LD_PRELOAD; the compiler knows its path
	env   []string
}

// builds are the sanitizers of gcc and clang, and a build without one.
var builds = []build{
	{name: "gcc", flags: "gcc"},
	{name: "gcc-address", flags: "gcc -fsanitize=address", env: []string{"ASAN_OPTIONS=verify_asan_link_order=0"}},
	{name: "gcc-address-first", flags: "gcc -fsanitize=address", early: "libasan.so"},
	{name: "gcc-thread", flags: "gcc -fsanitize=thread"},
	{name: "gcc-undefined", flags: "gcc -fsanitize=undefined -fno-sanitize-recover=all"},
	{name: "gcc-leak", flags: "gcc -fsanitize=leak"},
	{name: "clang-address", flags: "clang -fsanitize=address"},
	{name: "clang-thread", flags: "clang -fsanitize=thread"},
	{name: "clang-undefined", flags: "clang -fsanitize=undefined -fno-sanitize-recover=all"},
	{name: "clang-leak", flags: "clang -fsanitize=leak"},
	// MemorySanitizer reports memory as uninitialised that the driver has written, because the driver is not
	// instrumented. So its reports must not end the program.
	{name: "clang-memory", flags: "clang -fsanitize=memory -fsanitize-recover=memory", env: []string{"MSAN_OPTIONS=exit_code=0"}},
	{name: "clang-hwaddress", flags: "clang -fsanitize=hwaddress -fsanitize-hwaddress-experimental-aliasing -Wl,--no-relax"},
}

var cudaprogSources = sync.OnceValues(func() ([]string, error) {
	some, err := filepath.Glob("../programs/cudaprog*.c")
	return append(some, "../programs/cudriver.c", "../programs/cunvml.c"), err
})

// program compiles sources with the build's flags and returns the program's path.
func (b build) program(t *testing.T, name string, more []string, sources ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	args := append(strings.Fields(b.flags), "-O1", "-g", "-D_GNU_SOURCE", "-pthread", "-rdynamic", "-o", path)
	args = append(append(args, more...), sources...)
	r := rig.Run(t, bounded.Command(t, bounded.Lifetime, args[0], append(args[1:], "-ldl")...))
	if r.Code != 0 {
		t.Fatalf("%s: %s", strings.Join(args, " "), r.Stderr)
	}
	return path
}

func (b build) plain(t *testing.T) string {
	t.Helper()
	return b.program(t, "plain", nil, "testdata/plain.c")
}

// cudaprog returns the program in tests/programs in this build, linked against the driver or not.
func (b build) cudaprog(t *testing.T, how string) string {
	t.Helper()
	sources, err := cudaprogSources()
	if err != nil {
		t.Fatal(err)
	}
	more := []string{"-DHOW_DLSYM"}
	if how == "link" {
		sim := rig.Build(t, "sim")
		more = []string{"-DHOW_LINK", "-Wl,-z,lazy"}
		sources = append(sources[:len(sources):len(sources)], filepath.Join(sim, "libcuda.so"), filepath.Join(sim, "libnvidia-ml.so"))
	}
	return b.program(t, "cudaprog", more, sources...)
}

// first returns the libraries that must come first in LD_PRELOAD for this build, or nil.
func (b build) first(t *testing.T) []string {
	t.Helper()
	if b.early == "" {
		return nil
	}
	r := rig.Run(t, bounded.Command(t, rig.Patience, strings.Fields(b.flags)[0], "-print-file-name="+b.early))
	path := strings.TrimSpace(r.Stdout)
	if !filepath.IsAbs(path) {
		t.Fatalf("the compiler has no %s: %q", b.early, path)
	}
	return []string{path}
}

// companion is a library that users preload, or a tool under which they run programs.
type companion struct {
	name    string
	library string   // a pattern of its path
	tool    []string // command in front of the program; nil: the companion is a library
	env     []string
	// forksHang says that a program's children sometimes hang, without the shim as well, because a thread
	// of the companion may hold its locks when the program forks.
	forksHang bool
}

var companions = []companion{
	{name: "jemalloc", library: "/usr/lib/*/libjemalloc.so.2"},
	{name: "tcmalloc-minimal", library: "/usr/lib/*/libtcmalloc_minimal.so.4"},
	{name: "tcmalloc", library: "/usr/lib/*/libtcmalloc.so.4"},
	{name: "tcmalloc-debug", library: "/usr/lib/*/libtcmalloc_debug.so.4"},
	{name: "mimalloc", library: "/usr/lib/*/libmimalloc.so.2"},
	{name: "faketime", library: "/usr/lib/*/faketime/libfaketime.so.1", env: []string{"FAKETIME=-10y x2", "DONT_FAKE_MONOTONIC=0"}},
	{name: "faketime-threads", library: "/usr/lib/*/faketime/libfaketimeMT.so.1", env: []string{"FAKETIME=+1d"}},
	{name: "eatmydata", library: "/usr/lib/*/libeatmydata.so"},
	{name: "heaptrack", library: "/usr/lib/heaptrack/libheaptrack_preload.so", env: []string{"DUMP_HEAPTRACK_OUTPUT=/dev/null"}, forksHang: true},
	{name: "fakeroot", tool: []string{"fakeroot", "--"}},
	{name: "heaptrack-script", tool: []string{"heaptrack", "-o", "@"}, forksHang: true},
	// Limit the address space, so that the simulated driver reserves little, because memcheck keeps a record of every byte.
	{name: "valgrind", tool: []string{"prlimit", "--as=4294967296", "valgrind", "-q", "--error-exitcode=9", "--"}},
}

// path returns the library's path, or "" for a tool.
func (c companion) path(t *testing.T) string {
	t.Helper()
	if c.library == "" {
		return ""
	}
	found, err := filepath.Glob(c.library)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: no %s; tools/setup.sh installs it", c.name, c.library)
	}
	return found[0]
}

// command returns a command that runs a program under the tool.
func (c companion) command(t *testing.T, program ...string) []string {
	t.Helper()
	tool := make([]string, len(c.tool))
	for i, word := range c.tool {
		tool[i] = strings.ReplaceAll(word, "@", filepath.Join(t.TempDir(), "out"))
	}
	return append(tool, program...)
}

// own returns the path of a copy of the shim that belongs to the test.
func own(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(rig.Build(t, "libgpuarb.so"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "libgpuarb.so")
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
