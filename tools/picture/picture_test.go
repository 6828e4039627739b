package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pictures in docs/pictures are up to date with the golden files of `gpuarb top`, and a drawn
// screen has the colours and shapes of its text. cmd/gpuarb/top tests the golden files.

// TestPictures checks that each picture in docs/pictures is what `make pictures` makes of its
// golden file, that it is well-formed, and that a page shows it.
func TestPictures(t *testing.T) {
	top := filepath.Join("..", "..")
	pictures, err := filepath.Glob(filepath.Join(top, "docs", "pictures", "*.svg"))
	if err != nil || len(pictures) == 0 {
		t.Fatalf("no pictures: %v", err)
	}
	pages := read(t, filepath.Join(top, "README.md")) + read(t, filepath.Join(top, "docs", "reference", "top.md"))
	for _, path := range pictures {
		name := filepath.Base(path)
		got, want := read(t, path), draw(read(t, filepath.Join(top, "cmd", "gpuarb", "top", "testdata", "picture-"+strings.TrimSuffix(name, ".svg")+".txt")))
		if got != want {
			t.Errorf("%s is not what its golden file looks like: `make pictures` draws it anew", path)
		}
		if !strings.Contains(pages, "pictures/"+name) {
			t.Errorf("neither README.md nor docs/reference/top.md shows %s", path)
		}
		for d := xml.NewDecoder(strings.NewReader(got)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWideCharacters checks that the characters beside one of two cells stand in their own cells.
func TestWideCharacters(t *testing.T) {
	got := draw("ab火cd\n")
	for _, want := range []string{`x="12" y="25" textLength="16"`, `x="28" y="25" textLength="16"`, `x="44" y="25" textLength="16"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

// TestDraw checks that a run has one style, that shapes become rectangles, and that text is
// escaped.
func TestDraw(t *testing.T) {
	got := draw("␛[1;31ma<b␛[m ██▄␛[7m>x␛[m\n")
	for _, want := range []string{
		`width="96" height="42"`,
		`textLength="24" lengthAdjust="spacingAndGlyphs" fill="#ef6b73" fill-opacity="1" font-weight="bold">a&lt;b</text>`,
		`<rect x="44" y="12" width="16" height="18" fill="#d7dae0" fill-opacity="1"/>`,
		`<rect x="60" y="21" width="8" height="9" fill="#d7dae0" fill-opacity="1"/>`,
		`fill="#1e2127" fill-opacity="1">&gt;x</text>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}
