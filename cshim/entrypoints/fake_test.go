package entrypoints

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file has no test. It compiles a driver that exports the functions of a measured driver and answers
// cuGetProcAddress as its map says. resolve_test.go asks this driver.

// fake makes a driver in a new folder, from the exports and answers of a measured driver.
func fake(t *testing.T, driver string) string {
	t.Helper()
	return fakeOf(t, readMap(t, mapOf(driver)), exports(inventory(t), driver))
}

// fakeOf makes a driver from any exports and answers. Each function has its own address, and does
// nothing.
func fakeOf(t *testing.T, answers resolves, exported []string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "libcuda.map"), "libcuda.so.1 { global: cu*; local: *; };\n")
	source := filepath.Join(dir, "libcuda.c")
	write(t, source, fakeSource(answers, exported))
	compile(t, "-shared", "-fPIC", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1",
		"-Wl,--version-script="+filepath.Join(dir, "libcuda.map"), "-o", filepath.Join(dir, "libcuda.so.1"), source)
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func compile(t *testing.T, args ...string) {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	if out, err := bounded.Command(t, bounded.Lifetime, cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", cc, args, err, out)
	}
}

// fakeResolver answers like a real driver. With unknown flags it writes to no result parameter. Its first
// version does not write the function's address either if there is no function.
const fakeResolver = `
static int order(const struct row *r, const char *name, int flags) {
    int o = strcmp(r->name, name);
    return o ? o : r->flags - flags;
}
static const struct row *find(const char *name, int flags) {
    unsigned low = 0, high = count;
    while (low < high) {
        unsigned mid = (low + high) / 2;
        int o = order(&rows[mid], name, flags);
        if (o == 0)
            return &rows[mid];
        if (o < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return 0;
}
static int resolve(const char *name, void **pfn, int version, uint64_t flags, int *status) {
    const struct row *r = find(name, flags & 2 ? 2 : (int)flags);
    *status = r ? 2 : 1;
    *pfn = 0;
    int result = 0;
    for (int i = 0; r && i < r->count; i++)
        if ((unsigned)version >= (unsigned)r->steps[i].version) {
            *pfn = r->steps[i].symbol;
            result = r->steps[i].result;
            *status = r->steps[i].status;
        }
    return result;
}
int cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags) {
    void *found;
    int status;
    if (flags > 3)
        return 1;
    resolve(name, &found, version, flags, &status);
    if (!found)
        return 500;
    *pfn = found;
    return 0;
}
int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status) {
    int ignored;
    return flags > 3 ? 1 : resolve(name, pfn, version, flags, status ? status : &ignored);
}
`

func fakeSource(answers resolves, exported []string) string {
	var b strings.Builder
	b.WriteString("#include <stdint.h>\n#include <string.h>\n")
	b.WriteString("struct row { const char *name; int flags, count; struct { int version; void *symbol; int result, status; } steps[8]; };\n")
	b.WriteString("int cuGetProcAddress(const char *, void **, int, uint64_t);\n")
	b.WriteString("int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);\n")
	for i, symbol := range exported {
		if !strings.HasPrefix(symbol, "cuGetProcAddress") {
			fmt.Fprintf(&b, "int %s(void) { return %d; }\n", symbol, 10000+i)
		}
	}
	b.WriteString("static const struct row rows[] = {\n")
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		for flags, steps := range answers[name] {
			fmt.Fprintf(&b, "{%q, %d, %d, {", name, flags, len(steps))
			for _, s := range steps {
				symbol, result, status := "(void *)"+s.symbol, 0, 0
				if n, _ := fmt.Sscanf(s.symbol, "!r%d,st%d", &result, &status); n == 2 {
					symbol = "0"
				}
				fmt.Fprintf(&b, "{%s, %s, %d, %d},", s.version, symbol, result, status)
			}
			b.WriteString("}},\n")
		}
	}
	b.WriteString("};\nenum { count = sizeof rows / sizeof rows[0] };\n" + fakeResolver)
	return b.String()
}
