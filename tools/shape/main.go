// Command shape measures how a checkout is built, and prints it as tables for docs/architecture.md:
// files and lines of each room, the largest group of files that use each other in a circle, the
// longest function, and how many functions and files of the daemon's one request crosses.
//
//	make shape [AT=COMMIT] [LIST=grant|limit|death|restart]
//
// AT measures another commit, by the test of today (daemon/shape_test.go), in a worktree under build/.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/tools/filegraph"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("shape: ")
	at := flag.String("at", "", "measure this `commit`")
	list := flag.String("list", "", "name the functions that one `thing` crosses: grant, limit, death or restart")
	flag.Parse()
	root := "."
	if *at != "" {
		var err error
		if root, err = checkOut(*at); err != nil {
			log.Fatal(err)
		}
	}
	if err := measure(root, *list); err != nil {
		log.Fatal(err)
	}
}

// checkOut puts a commit beside the checkout, with today's test in it.
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

// room is a folder of what is shipped.
type room struct {
	name    string
	files   []string
	lines   int
	circle  int // files of the largest circle; 0: there is none
	longest function
}

type function struct {
	name  string
	file  string
	lines int
}

func (f *function) atLeast(g function) {
	if g.lines > f.lines {
		*f = g
	}
}

func measure(root, list string) error {
	sources, err := shipped(root)
	if err != nil {
		return err
	}
	rooms := map[string]*room{}
	var names []string
	for _, file := range sources {
		dir := filepath.Dir(file)
		r := rooms[dir]
		if r == nil {
			r = &room{name: dir}
			rooms[dir] = r
			names = append(names, dir)
		}
		r.files = append(r.files, file)
	}
	exports, err := filegraph.Exports(root)
	if err != nil {
		return err
	}
	slices.Sort(names)
	fmt.Printf("| room | files | lines | files in the largest circle | longest function |\n| --- | ---: | ---: | ---: | --- |\n")
	var all room
	for _, name := range names {
		r := rooms[name]
		if strings.HasSuffix(r.files[0], ".go") {
			err = r.readGo(root, exports)
		} else {
			err = r.readC(root)
		}
		if err != nil {
			return err
		}
		fmt.Printf("| `%s/` | %d | %d | %d | `%s` %d |\n", name, len(r.files), r.lines, r.circle, r.longest.name, r.longest.lines)
		all.files = append(all.files, r.files...)
		all.lines += r.lines
		all.circle = max(all.circle, r.circle)
		all.longest.atLeast(r.longest)
	}
	fmt.Printf("| all | %d | %d | %d | `%s` %d |\n\n", len(all.files), all.lines, all.circle, all.longest.name, all.longest.lines)
	return printWays(root, list)
}

// shipped names the sources of what is shipped, as git knows them.
func shipped(root string) (sources []string, err error) {
	command := exec.Command("git", "ls-files", "*.go", "*.c", "*.h", "*.def")
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	for file := range strings.FieldsSeq(string(out)) {
		counts := !strings.HasSuffix(file, "_test.go") && file != "cshim/wire.h" && file != "cshim/core/wire.h"
		for part := range strings.SplitSeq(filepath.Dir(file), "/") {
			counts = counts && !slices.Contains([]string{"tests", "test", "tools", "cshimtest", "entrypoints", "genlayout", "testdata"}, part)
		}
		if counts {
			sources = append(sources, file)
		}
	}
	return sources, nil
}
