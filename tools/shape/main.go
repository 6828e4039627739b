// Command shape measures the size of a checkout, and how much of it one request runs. It prints
// tables for docs/development/architecture.md. sources.go classifies files, and count.go counts
// lines. cycle.go, golang.go and clang.go find files that use each other in a cycle. crossing.go
// runs the daemon.
//
//	make shape [AT=COMMIT] [LIST=yes]
//
// AT measures another commit with the present test (daemon/shape_test.go), in a worktree under
// build/.
package main

// This file has the flags, checks out the commit, and prints the tables. The Makefile calls the
// command (target shape). sources.go and the other files measure.

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/gpuarb/gpuarb/tools/filegraph"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("shape: ")
	at := flag.String("at", "", "measure this `commit`")
	list := flag.Bool("list", false, "name the functions that a granted allocation crosses")
	flag.Parse()
	root := "."
	if *at != "" {
		var err error
		if root, err = checkOut(*at); err != nil {
			log.Fatal(err)
		}
	}
	if err := printTables(os.Stdout, root, *list); err != nil {
		log.Fatal(err)
	}
}

// checkOut makes a worktree of a commit, with the present test in it.
func checkOut(commit string) (root string, err error) {
	root = filepath.Join("build", "shape", commit)
	if _, err := os.Stat(root); err != nil {
		add := exec.Command("git", "worktree", "add", "--detach", root, commit)
		add.Stderr = os.Stderr
		if err := add.Run(); err != nil {
			return "", err
		}
	}
	const test = "daemon/shape_test.go"
	text, err := os.ReadFile(test)
	if err != nil {
		return "", err
	}
	return root, os.WriteFile(filepath.Join(root, test), text, 0o600)
}

// printTables prints the sums of a checkout, then a row for each shipped folder.
func printTables(w io.Writer, root string, list bool) error {
	sources, err := readSources(root)
	if err != nil {
		return err
	}
	folders, err := measure(root, sources)
	if err != nil {
		return err
	}
	grant, err := crossedByGrant(root)
	if err != nil {
		return err
	}
	largest := slices.MaxFunc(folders, func(a, b folder) int { return a.cycle - b.cycle })
	fmt.Fprintf(w, "| what | now |\n| --- | ---: |\n")
	for _, row := range []struct {
		what string
		now  any
	}{
		{"lines of code in `accounting/` and `arbiter/`", linesBelow(folders, "accounting", "arbiter")},
		{"lines of code in `daemon/`, without `inventory/` and `metrics/`, and in `internal/statefile/`",
			linesBelow(folders, "daemon", "internal/statefile", "statefile") - linesBelow(folders, "daemon/inventory", "daemon/metrics")},
		{"lines of code in `cshim/`, without what is generated and without tests", linesBelow(folders, "cshim")},
		{"lines of code in tests of all kinds", linesOf(sources, test)},
		{"files in the largest circle of one package", fmt.Sprintf("%d (`%s/`)", largest.cycle, largest.name)},
		{"functions of `accounting/`, `arbiter/` and `daemon/` that a granted allocation crosses", len(grant)},
	} {
		fmt.Fprintf(w, "| %s | %v |\n", row.what, row.now)
	}
	fmt.Fprintf(w, "\n| folder | files | lines of code | files in the largest circle |\n| --- | ---: | ---: | ---: |\n")
	for _, f := range folders {
		fmt.Fprintf(w, "| `%s/` | %d | %d | %d |\n", f.name, f.files, f.lines, f.cycle)
	}
	if list {
		for _, function := range grant {
			fmt.Fprintln(w, function)
		}
	}
	return nil
}

// folder is a folder with shipped files.
type folder struct {
	name  string
	files int
	lines int // lines of code
	cycle int // number of files of the largest cycle; 0: none
}

// measure measures the shipped folders, sorted by name.
func measure(root string, sources []source) (folders []folder, err error) {
	exports, err := filegraph.Exports(root)
	if err != nil {
		return nil, err
	}
	for _, name := range foldersOf(sources) {
		f := folder{name: name}
		var golang, clang []source
		for _, s := range sources {
			if s.kind != shipped || filepath.Dir(s.path) != name {
				continue
			}
			f.files++
			f.lines += linesOfCode(s.text)
			if filepath.Ext(s.path) == ".go" {
				golang = append(golang, s)
			} else {
				clang = append(clang, s)
			}
		}
		ofGo, err := cycleOfGo(name, golang, exports)
		if err != nil {
			return nil, err
		}
		f.cycle = max(ofGo, cycleOfC(root, clang))
		folders = append(folders, f)
	}
	return folders, nil
}
