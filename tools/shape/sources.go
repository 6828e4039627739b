package main

// This file reads the sources and classifies them. main.go prints the sums.

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kind is the purpose of a source.
type kind int

const (
	shipped   kind = iota // part of the commands or of the library
	test                  // tests, and code that only tests use
	tool                  // runs while gpuarb is built, or by hand
	generated             // written by a tool
)

// source is a file of Go or C.
type source struct {
	path string // path below the root of the checkout
	text []byte
	kind kind
}

// readSources reads the sources of Go and C that git tracks in a checkout.
func readSources(root string) (sources []source, err error) {
	command := exec.Command("git", "ls-files", "*.go", "*.c", "*.h", "*.def", "*.cu")
	command.Dir, command.Stderr = root, os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	for path := range strings.FieldsSeq(string(out)) {
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) {
			continue // removed, but the removal is not committed
		}
		if err != nil {
			return nil, err
		}
		sources = append(sources, source{path, text, kindOf(path, text)})
	}
	return sources, nil
}

// kindOf returns the purpose of a file, from its name and its first line.
func kindOf(path string, text []byte) kind {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	parts := strings.Split(path, "/")
	among := func(names ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(names, part) })
	}
	switch {
	case bytes.Contains(first, []byte("DO NOT EDIT")) || strings.HasSuffix(path, "/wire.h"):
		return generated
	case strings.HasSuffix(path, "_test.go") || among("tests", "test", "cshimtest", "entrypoints", "testdata"):
		return test
	case among("tools", "genlayout"):
		return tool
	}
	return shipped
}

// foldersOf returns the folders of shipped files, sorted.
func foldersOf(sources []source) (names []string) {
	for _, s := range sources {
		if s.kind == shipped {
			names = append(names, filepath.Dir(s.path))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// linesBelow returns the lines of code in the named folders and in the folders below them.
func linesBelow(folders []folder, names ...string) (lines int) {
	for _, f := range folders {
		if slices.ContainsFunc(names, func(name string) bool { return f.name == name || strings.HasPrefix(f.name, name+"/") }) {
			lines += f.lines
		}
	}
	return lines
}

// linesOf returns the lines of code in all sources of a kind.
func linesOf(sources []source, of kind) (lines int) {
	for _, s := range sources {
		if s.kind == of {
			lines += linesOfCode(s.text)
		}
	}
	return lines
}
