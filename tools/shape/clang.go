package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	included = regexp.MustCompile(`(?m)^#\s*include "([^"]+)"`)
	defined  = regexp.MustCompile(`^[a-z].*?(\w+)\(`) // as clang-format leaves a function's first line
)

// readC measures a folder of C. A .c with its .h counts as one file in a circle, which includes
// of any room can close.
func (r *room) readC(root string) error {
	uses := graph{}
	seen := map[string]bool{}
	for todo := append([]string(nil), r.files...); len(todo) > 0; todo = todo[1:] {
		file := todo[0]
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil || seen[file] {
			continue // a header that is generated, or of another room
		}
		seen[file] = true
		for _, m := range included.FindAllSubmatch(text, -1) {
			for _, base := range []string{filepath.Dir(file), "cshim"} {
				other := filepath.Join(base, string(m[1]))
				if _, err := os.Stat(filepath.Join(root, other)); err == nil {
					uses.add(unit(file), unit(other))
					todo = append(todo, other)
					break
				}
			}
		}
	}
	r.circle = uses.largestCircle()
	for _, file := range r.files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		r.lines += bytes.Count(text, []byte("\n"))
		r.longestC(file, string(text))
	}
	return nil
}

// unit is the name of a .c and its .h, which are one; a file of rows beside them is another.
func unit(file string) string {
	return strings.TrimSuffix(strings.TrimSuffix(file, ".c"), ".h")
}

func (r *room) longestC(file, text string) {
	name, began := "", 0
	for n, line := range strings.Split(text, "\n") {
		if m := defined.FindStringSubmatch(line); m != nil {
			name, began = m[1], n
		}
		if line == "}" && name != "" {
			r.longest.atLeast(function{name, file, n - began + 1})
			name = ""
		}
		if strings.HasSuffix(line, ";") && !strings.HasPrefix(line, " ") {
			name = "" // it was declared alone
		}
	}
}
