package cshimtest

import (
	"debug/elf"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file holds the functions that libgpuarb.so imports to cshim/imports.txt, which has a reason for each.

// TestImports checks the library's imported functions against a list with a reason for each.
// Sanitizers, allocators and preloads replace functions. Such a replacement could be called in the
// middle of its own dlsym.
func TestImports(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "imports.txt"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" && !strings.HasPrefix(name, "#") {
			reasons[name] = strings.TrimSpace(reason)
		}
	}
	f, err := elf.Open(built(t, "libgpuarb.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]bool{}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			imported[s.Name] = true
		}
	}
	if len(imported) == 0 {
		t.Error("the library imports nothing: the test looks at the wrong place")
	}
	for _, name := range slices.Sorted(maps.Keys(imported)) {
		if reasons[name] == "" {
			t.Errorf("%s is imported, and cshim/imports.txt has no reason why a program's own does no harm", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		if !imported[name] {
			t.Errorf("cshim/imports.txt lists %s, which is not imported", name)
		}
	}
}
