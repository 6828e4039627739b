package preloads

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/rig"
)

// This file compares what programs print and how they end with the shim and without it, when a sanitizer, an
// allocator or a tool works in the same process. programs_test.go has the builds and the companions;
// beside_full_test.go runs all of them.

// short are the combinations that `make test` runs: those that crashed once, and one of
// each kind. TestFull… runs all.
var (
	shortBuilds     = []string{"gcc-thread", "clang-memory", "gcc-address"}
	shortCompanions = []string{"jemalloc", "tcmalloc", "faketime", "fakeroot"}
)

// TestSanitizers runs a program that never touches a GPU, and one that does, with sanitizers.
func TestSanitizers(t *testing.T) {
	t.Parallel()
	for _, b := range builds {
		if slices.Contains(shortBuilds, b.name) {
			t.Run(b.name, func(t *testing.T) { t.Parallel(); beside(t, b, companion{}, false) })
		}
	}
}

// TestCompanions runs programs with libraries and tools that users put in front of a program.
func TestCompanions(t *testing.T) {
	t.Parallel()
	for _, c := range companions {
		if slices.Contains(shortCompanions, c.name) {
			t.Run(c.name, func(t *testing.T) { t.Parallel(); beside(t, builds[0], c, false) })
		}
	}
}

// TestOwnFunctions: a program has functions of its own in place of libc's, which look up the next function
// when they are called. The library's look-ups call none of them.
func TestOwnFunctions(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	program := builds[0].program(t, "replaces", nil, "testdata/replaces.c")
	r := rig.Run(t, m.Command(m.PreloadEnv(), program))
	if r.Code != 0 || r.Stdout != "found 1 none 1\n" {
		t.Errorf("status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	r = rig.Run(t, m.Gpuarb("run", "--memory", "1M", "--", program, "1048576"))
	if r.Code != 0 || r.Stdout != "found 1 none 1\nalloc 0 2\n" {
		t.Errorf("under a budget, status %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestAddressSanitizerUnderRun: a program built with GCC's address sanitizer runs under gpuarb run as without it. The
// sanitizer's runtime is a library that must come first in LD_PRELOAD, unless ASAN_OPTIONS says otherwise; gpuarb run sets
// that option.
func TestAddressSanitizerUnderRun(t *testing.T) {
	t.Parallel()
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	plain := builds[1].plain(t)
	want := rig.Run(t, m.Command(m.Env(), plain))
	got := rig.Run(t, m.Gpuarb("run", "--memory", "1M", "--", plain))
	if got != want || want.Code != 0 {
		t.Errorf("under gpuarb run %d\n%s%s\nwithout %d\n%s%s", got.Code, got.Stdout, got.Stderr, want.Code, want.Stdout, want.Stderr)
	}
}

// beside runs both programs without the shim, and with it before and after the companion.
func beside(t *testing.T, b build, c companion, all bool) {
	m := rig.New(t, rig.Options{Devices: "8G", NoMount: true})
	shim := own(t)
	first := b.first(t)
	orders := [][]string{append(slices.Clone(first), shim)}
	bare := first
	if library := c.path(t); library != "" {
		orders = [][]string{
			append(slices.Clone(first), shim, library),
			append(slices.Clone(first), library, shim),
		}
		bare = append(slices.Clone(first), library)
	}
	env := append(append(m.Env(), b.env...), c.env...)
	words := uses
	if c.forksHang {
		env = append(env, "PLAIN_WITHOUT_FORK=1")
		words = strings.Replace(words, "fork; init; alloc f 1M; free f; join; ", "", 1)
	}
	run := func(preload []string, more []string, words ...string) rig.Result {
		e := append(slices.Clone(env), more...)
		if len(preload) > 0 {
			e = append(e, "LD_PRELOAD="+strings.Join(preload, ":"))
		}
		words = c.command(t, words...)
		r := rig.Run(t, m.Command(e, words[0], words[1:]...))
		r.Stdout = toolsOwn.ReplaceAllString(r.Stdout, "")
		return r
	}
	same := func(what string, order []string, got, want rig.Result) {
		t.Helper()
		if got.Code != want.Code || got.Stdout != want.Stdout || complains(got) && !complains(want) {
			t.Errorf("%s, LD_PRELOAD=%s: status %d\n%s%s\nwithout the shim %d\n%s%s", what, strings.Join(order, ":"),
				got.Code, got.Stdout, got.Stderr, want.Code, want.Stdout, want.Stderr)
		}
	}
	plain := b.plain(t)
	want := run(bare, nil, plain)
	if want.Code != 0 || strings.Count(want.Stdout, "\n") < 20 {
		t.Fatalf("without the shim: status %d\n%s%s", want.Code, want.Stdout, want.Stderr)
	}
	for _, order := range orders {
		same("a program without a GPU", order, run(order, []string{"GPUARB_SOCKET=" + m.Socket}, plain), want)
	}
	hows := []string{"dlsym"}
	if all {
		hows = append(hows, "link")
	}
	for _, how := range hows {
		cudaprog := b.cudaprog(t, how)
		before := run(bare, nil, cudaprog, words)
		if before.Code != 0 || !strings.Contains(before.Stdout, "alloc b ok") {
			t.Fatalf("without the shim: status %d\n%s%s", before.Code, before.Stdout, before.Stderr)
		}
		refused := before
		refused.Stdout = strings.Replace(refused.Stdout, "alloc b ok", "alloc b err 2", 1)
		for _, order := range orders {
			got := run(order, []string{"GPUARB_SOCKET=" + m.Socket, "GPUARB_MEMORY=" + budget}, cudaprog, words)
			same("a program on a GPU ("+how+")", order, got, refused)
			if s := m.SimNumber("total", "0"); s != 0 {
				t.Errorf("%d bytes of the device are left behind", s)
			}
		}
	}
}

// uses are commands that need the whole budget, and then one byte more.
const (
	budget = "64M"
	uses   = "alloc a 64M; alloc b 1; write a 7; read a; free a; stream s; allocasync c 64M s; freeasync c s; sync s; " +
		"delay s 50; allocasync d 1M s; freeasync d s; sync s; alloc e 64M; free e; host h 1M; freehost h; " +
		"streamdestroy s; threads 4 50 1K 1; fork; init; alloc f 1M; free f; join; reload; init; alloc g 1M; free g"
)

// toolsOwn matches the lines that heaptrack prints about itself.
var toolsOwn = regexp.MustCompile(`(?m)^(heaptrack |Heaptrack |starting application|/usr/lib/heaptrack|  heaptrack |\s(allocations|leaked|temporary) ?.*|$).*\n`)

var complaint = regexp.MustCompile(`(?m)(Sanitizer|^==\d+==|runtime error:)`)

// complains reports whether a tool found an error.
func complains(r rig.Result) bool { return complaint.MatchString(r.Stderr) }
