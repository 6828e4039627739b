package gpufs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// This file compares the names, modes, owners, sizes and contents of all files with golden files in testdata.
// tests/tree compares the files of a daemon with docs/reference/gpufs.md.

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		have, expected := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range have {
			if i >= len(expected) || have[i] != expected[i] {
				t.Fatalf("%s differs (go test -update writes it anew) in line %d: %q", path, i+1, have[i])
			}
		}
		t.Errorf("%s has more lines", path)
	}
}

func TestTreeGolden(t *testing.T) {
	_, mnt := mountView(t, &fakeView{s: sample()})
	// Print mode, owner, size and name of each entry, in the order of the listing.
	listing := output(t, "find", mnt, "-printf", "%M %U:%G %s %P\n")
	golden(t, "tree.golden", listing)

	var contents strings.Builder
	// The files *.json and stats show each field of their structures, so that each new field would change the golden
	// file. Package report tests them.
	for _, name := range strings.Fields(output(t, "find", mnt, "-type", "f", "!", "-name", "*.json", "!", "-name", "stats", "-printf", "%P\n")) {
		contents.WriteString("== " + name + "\n" + output(t, "cat", filepath.Join(mnt, name)))
	}
	golden(t, "contents.golden", contents.String())
}
