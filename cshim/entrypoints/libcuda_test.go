//go:build libcuda

package entrypoints

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file asks the vendor's own libcuda every question of resolve_test.go, with the shim and without. Without
// a device its functions can be found, but not called.

// TestRealLibrary compares the shim's answers with the vendor's own library, for each release in
// LIBCUDA_FOLDERS. The library loads without a device. tools/test-libcuda.sh fetches them.
func TestRealLibrary(t *testing.T) {
	folders := filepath.SplitList(os.Getenv("LIBCUDA_FOLDERS"))
	if len(folders) == 0 {
		t.Fatal("LIBCUDA_FOLDERS names no folder; run make test-libcuda")
	}
	tab, all := readTable(t), inventory(t)
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			exported := exportsOf(t, filepath.Join(folder, "libcuda.so.1"))
			take, others := unlisted(exported, all)
			if len(take) > 0 {
				t.Errorf("it exports %v, which nobody has looked at", take)
			}
			t.Logf("%d functions; unknown, by their names harmless: %v", len(exported), others)
			measured := slices.IndexFunc(drivers, func(driver string) bool {
				return strings.HasPrefix(filepath.Base(folder), driver+".")
			})
			// Ask for every name that any driver is known to have.
			w := newWalk(t, exported, readMap(t, mapOf("555")))
			for _, how := range []string{"dlsym", "dlvsym", "gpa"} {
				if how == "gpa" && !slices.Contains(exported, "cuGetProcAddress_v2") {
					continue
				}
				bare := w.run(folder, how, false)
				if measured >= 0 {
					checkMap(t, readMap(t, mapOf(drivers[measured])), bare)
				}
				compare(t, tab.hooked, bare, w.run(folder, how, true), 100)
			}
		})
	}
}

func exportsOf(t *testing.T, path string) []string {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && strings.HasPrefix(s.Name, "cu") {
			names = append(names, s.Name)
		}
	}
	return names
}
