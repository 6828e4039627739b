package main

// This file finds the functions that a granted allocation runs. It runs a test of the daemon with
// coverage. main.go prints the result.

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// times is the number of allocations that the test makes. Code that ran at least as often belongs
// to every allocation.
const times = 20

// crossedByGrant returns the functions of accounting, arbiter and daemon that run for every
// allocation that is granted at once, as FILE NAME. It uses the coverage of daemon's TestShape.
// Code that also runs without allocations is not counted.
func crossedByGrant(root string) (functions []string, err error) {
	none, err := cover(root, 0)
	if err != nil {
		return nil, err
	}
	many, err := cover(root, times)
	if err != nil {
		return nil, err
	}
	begins := map[string][]int{} // lines at which blocks begin, by file
	for block, count := range many {
		if count-none[block] < times {
			continue
		}
		path, at, _ := strings.Cut(block, ":")
		_, path, _ = strings.Cut(path, "gpuarb/gpuarb/")
		line, _, _ := strings.Cut(at, ".")
		n, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		begins[path] = append(begins[path], n)
	}
	for _, path := range slices.Sorted(maps.Keys(begins)) {
		names, err := functionsAt(filepath.Join(root, path), begins[path])
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			functions = append(functions, path+" "+name)
		}
	}
	return functions, nil
}

// cover runs the test with a number of allocations. It returns how many times each block ran.
func cover(root string, allocations int) (map[string]int, error) {
	profile, err := filepath.Abs(filepath.Join(root, "build", "shape.cover"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(profile), 0o755); err != nil {
		return nil, err
	}
	run := exec.Command("go", "test", "-count=1", "-run", "^TestShape$", "-covermode=atomic",
		"-coverpkg=./accounting/...,./arbiter/...,./daemon/...", "-coverprofile="+profile, "./daemon")
	run.Dir = root
	run.Env = append(os.Environ(), "GPUARB_SHAPE_TIMES="+strconv.Itoa(allocations))
	if out, err := run.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", run.Args, err, out)
	}
	file, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text()) // PACKAGE/FILE.go:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT
		if len(fields) == 3 {
			count, err := strconv.Atoi(fields[2])
			if err != nil {
				return nil, err
			}
			counts[fields[0]] += count
		}
	}
	return counts, lines.Err()
}

// functionsAt returns the names of the functions of a file that contain one of the lines.
func functionsAt(path string, lines []int) (names []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		from, to := fset.Position(f.Pos()).Line, fset.Position(f.End()).Line
		if slices.ContainsFunc(lines, func(n int) bool { return from <= n && n <= to }) {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}
