package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file finds promises that no code keeps: figures that nothing sets, options and environment variables
// that nothing reads, and settings of the systemd units. It compares names only.

// names are the names that the Go files of some packages, without tests, assign to (or set in a
// composite literal), and the names that they read.
type names struct{ set, read map[string]bool }

func namesIn(t *testing.T, folders ...string) names {
	t.Helper()
	n := names{map[string]bool{}, map[string]bool{}}
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(paths), err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, n.note)
		}
	}
	return n
}

func (n names) note(node ast.Node) bool {
	put := func(e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok {
			n.set[s.Sel.Name] = true
		}
	}
	switch node := node.(type) {
	case *ast.AssignStmt:
		for _, e := range node.Lhs {
			put(e)
		}
	case *ast.IncDecStmt:
		put(node.X)
	case *ast.KeyValueExpr:
		if key, ok := node.Key.(*ast.Ident); ok {
			n.set[key.Name] = true
		}
	case *ast.SelectorExpr:
		n.read[node.Sel.Name] = true
	}
	return true
}

// fieldsOf returns the fields of the named structures in a file, as Type.Field.
func fieldsOf(t *testing.T, path string, types ...string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		of, ok := spec.Type.(*ast.StructType)
		if !ok || len(types) > 0 && !slices.Contains(types, spec.Name.Name) {
			return true
		}
		for _, field := range of.Fields.List {
			for _, name := range field.Names {
				fields = append(fields, spec.Name.Name+"."+name.Name)
			}
		}
		return true
	})
	if len(fields) == 0 {
		t.Fatalf("%s has no fields", path)
	}
	return fields
}

// TestEveryFigureIsSet: every figure that gpuarb shows is set in its code.
func TestEveryFigureIsSet(t *testing.T) {
	set := namesIn(t, "arbiter", "daemon").set
	for _, field := range fieldsOf(t, "internal/figures/snapshot.go") {
		if _, name, _ := strings.Cut(field, "."); !set[name] {
			t.Errorf("figures.%s is shown, and nothing sets it", field)
		}
	}
}

// TestEveryOptionIsRead: every option of the configuration is read in the code.
func TestEveryOptionIsRead(t *testing.T) {
	read := namesIn(t, "arbiter", "arbiter/rules").read
	options := append(fieldsOf(t, "arbiter/rules/rule.go", "Settings", "Rule", "DeviceRule"), fieldsOf(t, "arbiter/rules/policy.go", "Policy")...)
	for _, field := range options {
		if _, name, _ := strings.Cut(field, "."); !read[name] {
			t.Errorf("rules.%s can be configured, and nothing reads it", field)
		}
	}
}

// TestUnitOptionsHaveCode: the daemon does what its systemd unit promises.
func TestUnitOptionsHaveCode(t *testing.T) {
	code := ""
	paths, err := filepath.Glob(filepath.Join(root, "daemon", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, filepath.Join(root, "cmd/gpuarbd/main.go")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code += string(text)
	}
	for option, needs := range map[string]string{
		"Type=notify": "READY=1", "ExecReload": "SIGHUP", "WatchdogSec": "sd.SdNotifyWatchdog", "FileDescriptorStoreMax": "FDSTORE=1",
		"FileDescriptorStorePreserve": "FDSTORE=1", "RestartPreventExitStatus=78": "exitConfig = 78",
	} {
		for _, unit := range []string{"systemd/gpuarbd.service", "systemd/user/gpuarbd.service"} {
			if strings.Contains(read(t, unit), "\n"+option) && !strings.Contains(code, needs) {
				t.Errorf("%s has %s, and the daemon has no %s", unit, option, needs)
			}
		}
	}
}

// TestVariablesAreDocumented: each environment variable that a page names is read by some code, and each variable that code reads is in a page.
func TestVariablesAreDocumented(t *testing.T) {
	variable := regexp.MustCompile(`GPUARB_[A-Z_]+[A-Z]`)
	collect := func(into map[string]bool, text string) {
		for _, name := range variable.FindAllString(text, -1) {
			into[name] = true
		}
	}
	documented, inCode := map[string]bool{}, map[string]bool{}
	for _, page := range []string{"README.md", "docs"} {
		eachFile(t, page, ".md", func(path, text string) {
			if filepath.Base(path) != "events.md" { // the names in events.md are fields of the journal
				collect(documented, text)
			}
		})
	}
	for _, folder := range []string{"cshim", "cmd", "shim", "ipc", "daemon", "internal/config"} {
		for _, ext := range []string{".go", ".c", ".h"} {
			eachFile(t, folder, ext, func(path, text string) {
				if !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "test/") {
					collect(inCode, text)
				}
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(documented)) {
		if !inCode[name] && !strings.HasPrefix(name, "GPUARB_TEST_") {
			t.Errorf("a page names %s, which nothing reads", name)
		}
	}
	table := read(t, "docs/admin/configuration.md")
	for _, name := range slices.Sorted(maps.Keys(inCode)) {
		if !strings.Contains(table, "`"+name+"`") {
			t.Errorf("docs/admin/configuration.md does not say what %s is", name)
		}
	}
}

// eachFile calls f for every file with an extension below a path of the tree.
func eachFile(t *testing.T, path, ext string, f func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, path), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ext {
			return err
		}
		text, err := os.ReadFile(path)
		f(path, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
