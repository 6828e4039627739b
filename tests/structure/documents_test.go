package structure

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file compares names in documents with the tree: pages, tests, make targets, paths, and the files of /gpu.
// The links are checked in links_test.go, the commands in messages_test.go.

var (
	testInText   = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	testDeclared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w+)\(`)
	makeInText   = regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*)")
	makeDeclared = regexp.MustCompile(`(?m)^(?:\.PHONY: )?([a-z][a-z0-9 -]*)(?::|$)`)
	pathInText   = regexp.MustCompile("`([a-z.]+/[A-Za-z0-9_./-]+)`")
)

// documents returns the text of each page that describes the present state, by name. Decisions and the changelog
// also name what is gone.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	for _, name := range files(t) {
		if path.Ext(name) == ".md" && name != "CHANGELOG.md" && !strings.HasPrefix(name, "docs/decisions/") {
			pages[name] = read(t, name)
		}
	}
	return pages
}

// TestEveryDocumentIsListed finds each page of docs/ in docs/README.md, or in the list of its folder.
func TestEveryDocumentIsListed(t *testing.T) {
	linked := make(map[string]bool)
	for _, name := range files(t) {
		if strings.HasPrefix(name, "docs/") && path.Base(name) == "README.md" {
			for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
				target, _, _ := strings.Cut(m[1], "#")
				linked[path.Join(path.Dir(name), target)] = true
			}
		}
	}
	for _, name := range files(t) {
		if strings.HasPrefix(name, "docs/") && path.Ext(name) == ".md" && name != "docs/README.md" && !linked[name] {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// TestTestsInDocuments finds each test that a page names. A page may name a test by its beginning.
func TestTestsInDocuments(t *testing.T) {
	var declared []string
	for _, name := range files(t) {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range testDeclared.FindAllStringSubmatch(read(t, name), -1) {
				declared = append(declared, m[1])
			}
		}
	}
	for name, text := range documents(t) {
		for _, test := range testInText.FindAllString(text, -1) {
			if !slices.ContainsFunc(declared, func(name string) bool { return strings.HasPrefix(name, test) }) {
				t.Errorf("%s names %s, and there is no such test", name, test)
			}
		}
	}
}

// TestTargetsInDocuments finds each target of make that a page names.
func TestTargetsInDocuments(t *testing.T) {
	declared := make(map[string]bool)
	for _, name := range files(t) {
		if name == "Makefile" || path.Ext(name) == ".mk" {
			for _, m := range makeDeclared.FindAllStringSubmatch(read(t, name), -1) {
				for _, target := range strings.Fields(m[1]) {
					declared[target] = true
				}
			}
		}
	}
	for name, text := range documents(t) {
		for _, m := range makeInText.FindAllStringSubmatch(text, -1) {
			if !declared[m[1]] {
				t.Errorf("%s names `make %s`, and there is no such target", name, m[1])
			}
		}
	}
}

// TestPathsInDocuments finds each file and folder of the tree that a page names.
func TestPathsInDocuments(t *testing.T) {
	all, top := make(map[string]bool), make(map[string]bool)
	for _, name := range files(t) {
		for ; name != "."; name = path.Dir(name) {
			all[name] = true
			if path.Dir(name) == "." {
				top[name] = true
			}
		}
	}
	for name, text := range documents(t) {
		for _, m := range pathInText.FindAllStringSubmatch(text, -1) {
			named := path.Clean(m[1])
			first, _, _ := strings.Cut(named, "/")
			invented := strings.HasPrefix(named, "cshim/hip") // the example of a new interface
			if top[first] && !all[named] && !all[path.Join(path.Dir(name), named)] && !invented {
				t.Errorf("%s names %s, which does not exist", name, named)
			}
		}
	}
}

// TestSketchOfTheFilesystem compares the sketch at the top of docs/reference/gpufs.md with the table of that page, which
// tests/tree compares with a mounted filesystem.
func TestSketchOfTheFilesystem(t *testing.T) {
	const page = "docs/reference/gpufs.md"
	text := read(t, page)
	table := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| 0[0-7]{3} \\|").FindAllStringSubmatch(text, -1) {
		table[m[1]] = true
	}
	_, sketch, _ := strings.Cut(text, "```\n/gpu/\n")
	sketch, _, _ = strings.Cut(sketch, "```")
	drawn := sketched(sketch, table)
	if len(drawn) < 50 {
		t.Fatalf("the sketch of %s has only %d files", page, len(drawn))
	}
	for name := range drawn {
		if !table[name] {
			t.Errorf("%s draws %s, which its table does not have", page, name)
		}
	}
	for name := range table {
		folder := name == "."
		for other := range table {
			folder = folder || strings.HasPrefix(other, name+"/")
		}
		root := strings.HasPrefix(name, "cgroups/") && drawn["cgroups/PATH/"+path.Base(name)] // the cgroup at the top
		if !folder && !root && !drawn[name] {
			t.Errorf("%s does not draw %s", page, name)
		}
	}
}

// sketched returns the paths that a sketch draws. A line begins with a file of the top, or with a folder and the
// names in it; a folder that is indented further lies in that of a process. `memory.*` stands for all such files of the table.
func sketched(sketch string, table map[string]bool) map[string]bool {
	drawn := make(map[string]bool)
	folder := ""
	for line := range strings.Lines(sketch) {
		words := strings.Fields(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case len(words) == 0:
			continue
		case strings.HasSuffix(words[0], "/"):
			if folder = words[0]; indent > 2 {
				folder = "processes/PID/" + folder
			}
			words = words[1:]
		case indent <= 2:
			drawn[words[0]] = true
			continue
		}
		for _, word := range words {
			prefix, all := strings.CutSuffix(folder+word, "*")
			if !all {
				drawn[prefix] = true
				continue
			}
			for name := range table {
				if strings.HasPrefix(name, prefix) {
					drawn[name] = true
				}
			}
		}
	}
	return drawn
}

// TestAddressesOfThePage compares the addresses that the web server answers with the table in docs/reference/http.md. Scripts and
// styles belong to the page at `/`.
func TestAddressesOfThePage(t *testing.T) {
	const page = "docs/reference/http.md"
	code, text := read(t, "web/server.go"), read(t, page)
	addresses := regexp.MustCompile(`HandleFunc\("(/[a-z]*)"`).FindAllStringSubmatch(code, -1)
	rows := regexp.MustCompile("(?m)^\\| `(/[a-z]*)` \\|").FindAllStringSubmatch(text, -1)
	served, listed := map[string]bool{"/": true}, make(map[string]bool)
	for _, m := range addresses {
		served[m[1]] = true
	}
	for _, m := range rows {
		listed[m[1]] = true
	}
	if len(served) < 4 || !maps.Equal(served, listed) {
		t.Errorf("%s lists %q, web/server.go serves %q", page, slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(served)))
	}
}
