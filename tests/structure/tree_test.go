package structure

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file reads the tree for the other tests of this package: packages, files and texts.

const (
	module = "github.com/gpuarb/gpuarb"
	root   = "../.."
)

// pkg is a package as go list prints it, with the fields that these tests need.
type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	CgoFiles     []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
}

// path is the package's path below the module.
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// shipped says whether users get the package, in a binary or to import.
func (p pkg) shipped() bool {
	return !within(p.path(), "tests") && !within(p.path(), "tools") && p.path() != "ipc/genlayout"
}

var listed = sync.OnceValues(func() ([]pkg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bounded.Lifetime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-tags", "gpu,full", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// within says whether a path is dir or below it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// files lists the files of the checkout, by slash-separated paths below the root:
// what git knows or would add, or, in a tree without git, all but build/.
func files(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		cmd := bounded.Command(t, bounded.Patience, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git ls-files: %v", err)
		}
		var names []string
		for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
			// A file that was removed is listed until the removal is committed.
			if info, err := os.Lstat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && name == "build" {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
