package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file compares tests/conformance/rows.txt with the tests and the mutants.

const (
	rowsFile   = "tests/conformance/rows.txt"
	mutantsDir = "tests/mutants"
)

var (
	rowLine    = regexp.MustCompile(`^([A-G][0-9]+) +\S`)
	rowOfTest  = regexp.MustCompile(`^Test([A-F][0-9]+)(?:[A-Z_]|$)`)
	mutantTest = regexp.MustCompile(`^(\./\S+) -run (Test\w+)$`)
)

// rows returns the names of the required behaviours.
func rows(t *testing.T) []string {
	t.Helper()
	var all []string
	for i, line := range strings.Split(read(t, rowsFile), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := rowLine.FindStringSubmatch(line)
		switch {
		case m == nil:
			t.Errorf("%s:%d: want a row and what it says, have %q", rowsFile, i+1, line)
		case slices.Contains(all, m[1]):
			t.Errorf("%s:%d: %s a second time", rowsFile, i+1, m[1])
		default:
			all = append(all, m[1])
		}
	}
	return all
}

// testNames lists the tests in a folder.
func testNames(t *testing.T, dir string) []string {
	t.Helper()
	matches, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range matches {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// mutant is the head of one patch.
type mutant struct{ file, row, pkg, test string }

func mutants(t *testing.T) []mutant {
	t.Helper()
	var all []mutant
	for _, name := range files(t) {
		if path.Dir(name) != mutantsDir || path.Ext(name) != ".patch" {
			continue
		}
		m := mutant{file: name}
		head, _, _ := strings.Cut(read(t, name), "\ndiff ")
		for line := range strings.Lines(head) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "Row":
				m.row = value
			case "Test":
				if parts := mutantTest.FindStringSubmatch(value); parts != nil {
					m.pkg, m.test = parts[1], parts[2]
				}
			}
		}
		all = append(all, m)
	}
	return all
}

// TestEveryRowHasATest: every required behaviour has a conformance test. For the rows of G, the
// tests that their mutants name count.
func TestEveryRowHasATest(t *testing.T) {
	required := rows(t)
	tests := testNames(t, "tests/conformance")
	if len(tests) == 0 {
		return
	}
	for _, row := range required {
		if !strings.HasPrefix(row, "G") && !slices.ContainsFunc(tests, func(name string) bool {
			m := rowOfTest.FindStringSubmatch(name)
			return m != nil && m[1] == row
		}) {
			t.Errorf("row %s of %s has no test in tests/conformance", row, rowsFile)
		}
	}
}

// TestEveryRowHasAMutant: each required behaviour has a mutant, and each mutant names its row and an existing test.
func TestEveryRowHasAMutant(t *testing.T) {
	required := rows(t)
	all := mutants(t)
	if len(all) == 0 {
		return
	}
	for _, row := range required {
		if !slices.ContainsFunc(all, func(m mutant) bool { return m.row == row }) {
			t.Errorf("row %s of %s has no mutant in %s", row, rowsFile, mutantsDir)
		}
	}
	names := map[string][]string{} // of the tests, by folder
	for _, m := range all {
		if names[m.pkg] == nil {
			names[m.pkg] = testNames(t, m.pkg)
		}
		if !slices.Contains(required, m.row) {
			t.Errorf("%s: Row: %q is not in %s", m.file, m.row, rowsFile)
		}
		if !strings.HasPrefix(path.Base(m.file), m.row+"-") {
			t.Errorf("%s: its name does not begin with its row, %s", m.file, m.row)
		}
		if m.test == "" {
			t.Errorf("%s: no line Test: ./folder -run TestName", m.file)
		} else if !slices.Contains(names[m.pkg], m.test) {
			t.Errorf("%s: no test %s in %s", m.file, m.test, m.pkg)
		}
	}
}

// TestMutantsApply: each patch applies to the tree. Without this test a stale patch would be noticed only by `make mutants`.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants(t) {
		cmd := bounded.Command(t, bounded.Patience, "git", "apply", "--check", filepath.FromSlash(m.file))
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m.file, err, out)
		}
	}
}
