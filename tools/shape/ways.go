package main

import (
	"bufio"
	"fmt"
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

// times is how often the test does the one thing: what ran as often as that was crossed by each.
const times = 20

// clientSide are the files of ipc that the other end of the connection runs, which the test is as well.
var clientSide = []string{"claim.go", "client.go", "shimclient.go", "waiting.go"}

// printWays prints what a request crosses.
func printWays(root, list string) error {
	fmt.Printf("| what happens | functions | files | packages |\n| --- | ---: | ---: | ---: |\n")
	for _, way := range []struct{ test, name string }{
		{"grant", "an allocation is granted at once"}, {"limit", "a process's memory.max is changed"},
		{"death", "a client dies, and its memory is back"}, {"restart", "the daemon stops, the next one starts, and a session is taken up"},
	} {
		none, err := cover(root, way.test, 0)
		if err != nil {
			return err
		}
		many, err := cover(root, way.test, times)
		if err != nil {
			return err
		}
		functions, err := crossed(root, none, many)
		if err != nil {
			return err
		}
		files, packages := map[string]bool{}, map[string]bool{}
		for _, f := range functions {
			files[f.file], packages[filepath.Dir(f.file)] = true, true
		}
		fmt.Printf("| %s | %d | %d | %d |\n", way.name, len(functions), len(files), len(packages))
		if list == way.test {
			for _, f := range functions {
				fmt.Println(f.file, f.name)
			}
		}
	}
	return nil
}

// cover runs the test and says how often each block ran.
func cover(root, test string, n int) (map[string]int, error) {
	profile, err := filepath.Abs(filepath.Join(root, "build", "shape.cover"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(profile), 0o755); err != nil {
		return nil, err
	}
	run := exec.Command("go", "test", "-count=1", "-run", "^TestShape$/^"+test+"$", "-covermode=atomic", "-coverpkg=./...",
		"-coverprofile="+profile, "./daemon")
	run.Dir = root
	run.Env = append(os.Environ(), "GPUARB_SHAPE_TIMES="+strconv.Itoa(n), "GPUARB_SHAPE_CLIENTS="+strconv.Itoa(times))
	if out, err := run.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%v: %w\n%s", run.Args, err, out)
	}
	file, err := os.Open(profile)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	counts := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text()) // PACKAGE/FILE.go:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT
		if len(fields) == 3 {
			count, err := strconv.Atoi(fields[2])
			if err != nil {
				return nil, err
			}
			counts[fields[0]] += count
		}
	}
	return counts, nil
}

// crossed are the functions of which a block ran for each of the times.
func crossed(root string, none, many map[string]int) (functions []function, err error) {
	lines := map[string][]int{} // at which blocks begin, by file
	for block, count := range many {
		if count-none[block] < times {
			continue
		}
		path, at, _ := strings.Cut(block, ":")
		_, path, _ = strings.Cut(path, "gpuarb/gpuarb/")
		if strings.HasPrefix(path, "tests/") || filepath.Dir(path) == "ipc" && slices.Contains(clientSide, filepath.Base(path)) {
			continue
		}
		line, _, _ := strings.Cut(at, ".")
		n, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		lines[path] = append(lines[path], n)
	}
	for _, path := range slices.Sorted(maps.Keys(lines)) {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(root, path), nil, 0)
		if err != nil {
			return nil, err
		}
		for _, f := range functionsOf(fset, file) {
			if slices.ContainsFunc(lines[path], func(n int) bool { return f.from <= n && n <= f.to }) {
				f.file = path
				functions = append(functions, f.function)
			}
		}
	}
	return functions, nil
}
