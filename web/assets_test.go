package web

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// This file checks the files of the web page without a browser: uPlot is unchanged, and the page's
// own files load nothing from other sites and contain nothing that its security policy refuses.
// tests/web opens the page in a browser.

// TestUplot checks that the files of uPlot are as published, with their licence.
func TestUplot(t *testing.T) {
	const folder = "assets/uplot"
	sums, err := assets.ReadFile(folder + "/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{"SHA256SUMS": true}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data, err := assets.ReadFile(path.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
			t.Errorf("%s is not as it was published: %s, want %s", name, got, sum)
		}
		names[name] = true
	}
	entries, err := assets.ReadDir(folder)
	if err != nil || len(entries) != len(names) || !names["LICENSE"] {
		t.Errorf("%v, and sums of %v, %v", entries, names, err)
	}
}

var (
	// elsewhere matches addresses that would be loaded from other sites.
	elsewhere = regexp.MustCompile(`(src|href)="?(https?:)?//|@import|url\(|import .* from '(?:[^.]|\.[^/])|fetch\('(?:https?:)?//`)
	// inline matches markup that the policy would refuse.
	inline = regexp.MustCompile(`<script>|<style>| style=| on[a-z]+=|javascript:`)
	// unsafe matches code that turns text into markup.
	unsafe = regexp.MustCompile(`insertAdjacentHTML|document\.write|\.outerHTML|\.innerHTML\s*\+?=[^=]|eval\(|new Function`)
)

// TestOwnFiles checks that the page loads nothing from elsewhere, has nothing inline, and makes no
// markup of text. Every file to which it refers is served.
func TestOwnFiles(t *testing.T) {
	at := map[string]bool{".": true, "state": true, "history": true, "events": true, "metrics": true}
	for _, file := range embeddedFiles {
		at[strings.TrimPrefix(file.at, "/")] = true
	}
	refers := regexp.MustCompile(`(?:src|href)="([^"#]+)"|fetch\('([^']+)'|EventSource\('([^']+)'|from '\./([^']+)'`)
	err := fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.Contains(name, "/uplot/") {
			return err
		}
		data, err := assets.ReadFile(name)
		text := string(data)
		for what, rule := range map[string]*regexp.Regexp{"loads from elsewhere": elsewhere, "has inline": inline, "makes markup": unsafe} {
			if found := rule.FindString(text); found != "" {
				t.Errorf("%s %s: %s", name, what, found)
			}
		}
		for _, m := range refers.FindAllStringSubmatch(text, -1) {
			if to := m[1] + m[2] + m[3] + m[4]; !at[to] {
				t.Errorf("%s refers to %s, which is not served", name, to)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
