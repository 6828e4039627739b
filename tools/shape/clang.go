package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var included = regexp.MustCompile(`(?m)^#\s*include "([^"]+)"`)

// circleOfC returns the size of the largest circle that files of a folder close by what they include. A .c and its .h
// count as one file. Files of other folders that these include are read as well, because they may close a circle.
func circleOfC(root string, sources []source) int {
	uses := graph{}
	seen := map[string]bool{}
	var todo []string
	for _, s := range sources {
		todo = append(todo, s.path)
	}
	for ; len(todo) > 0; todo = todo[1:] {
		file := todo[0]
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || seen[file] {
			continue // a generated header
		}
		seen[file] = true
		for _, m := range included.FindAllSubmatch(text, -1) {
			for _, base := range []string{filepath.Dir(file), "cshim"} {
				other := filepath.Join(base, string(m[1]))
				if _, err := os.Stat(filepath.Join(root, other)); err == nil {
					uses.add(withoutSuffix(file), withoutSuffix(other))
					todo = append(todo, other)
					break
				}
			}
		}
	}
	return uses.largestCircle()
}

// withoutSuffix returns the name that a .c and its .h share. Rows in a .def beside them are another file.
func withoutSuffix(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(file, ".c"), ".h")
}
