package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The measured size of a checkout counts lines of code by folder, without blank lines, comments,
// tests and generated files. The expected numbers are counted by hand.

// TestLinesOfCode checks the number of lines that are neither blank nor comments.
func TestLinesOfCode(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{
		{"", 0},
		{"\n \n\t\n", 0},
		{"// a\n/* b\n c */\n", 0},
		{"int a; // one\n/* no */ int b; /* two\nno */ int c;", 3},
		{"s := \"// no comment\" /* a\n\nb */\nt := '\"' // c\n", 2},
		{"c := '\\''; d := \"\\\"/*\"\ne()\n", 2},
		{"s := `a\n// in the text\n\n\"` + \"b\"\nc()\n", 4},
		{"#define A \\\n\t1\n", 2},
	} {
		if got := linesOfCode([]byte(c.text)); got != c.want {
			t.Errorf("%d lines of code, not %d, in:\n%s", got, c.want, c.text)
		}
	}
}

// TestMeasure measures a checkout that has a package with a source of C in it, a folder of C,
// generated code and tests.
func TestMeasure(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":               "module example.com/m\n",
		"cmd/m/main.go":        "package main\n\nimport \"example.com/m/spawn\"\n\nfunc main() { spawn.A() }\n",
		"spawn/a.go":           "// Package spawn is Go and C.\npackage spawn\n\nimport \"C\"\n\nfunc A() { b() }\n\nfunc c() {}\n",
		"spawn/b.go":           "package spawn\n\nfunc b() { c() }\n",
		"spawn/start.c":        "#include <stddef.h>\n/* in C */\nint started;\n",
		"spawn/a_test.go":      "package spawn\n",
		"cshim/core/x.c":       "#include \"x.h\"\n#include \"y.h\"\n",
		"cshim/core/x.h":       "int x;\n",
		"cshim/core/y.h":       "#include \"x.h\"\n",
		"cshim/core/wire.h":    "// generated\nint wire;\n",
		"cshim/test/x_test.c":  "int main(void)\n{\n}\n",
		"tools/name/main.go":   "package main\n",
		"tests/programs/one.c": "int one;\n",
	} {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{{"init", "-q"}, {"add", "."}} {
		command := exec.Command("git", arguments...)
		command.Dir = root
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	sources, err := readSources(root)
	if err != nil {
		t.Fatal(err)
	}
	folders, err := measure(root, sources)
	if err != nil {
		t.Fatal(err)
	}
	want := []folder{{"cmd/m", 1, 3, 0}, {"cshim/core", 3, 4, 2}, {"spawn", 3, 8, 2}}
	if len(folders) != len(want) {
		t.Fatalf("the folders are %v, not %v", folders, want)
	}
	for i := range want {
		if folders[i] != want[i] {
			t.Errorf("%v is measured, not %v", folders[i], want[i])
		}
	}
	if got := linesOf(sources, test); got != 5 {
		t.Errorf("tests have %d lines of code, not 5", got)
	}
	if got := linesBelow(folders, "cshim", "spawn"); got != 12 {
		t.Errorf("%d lines below cshim and spawn, not 12", got)
	}
}
