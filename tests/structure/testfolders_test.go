package structure

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file compares the list of test folders in tests/README.md with the tree. links_test.go checks
// that each link of that page leads to a file or folder.

const testFoldersPage = "tests/README.md"

// The groups of the list, in their order on the page.
var testGroups = []string{"Behaviour", "Programs and machines", "Faults and load", "Test equipment"}

var (
	groupHeading  = regexp.MustCompile(`(?m)^## (.*)$`)
	testFolderRow = regexp.MustCompile(`(?m)^\| \[(\w+)\]\((\w+)/\) \| .+ \|$`)
)

// TestEveryTestFolderIsListed checks that tests/README.md has one line for each folder of tests/, in
// one of the four groups.
func TestEveryTestFolderIsListed(t *testing.T) {
	text := read(t, testFoldersPage)
	var groups []string
	for _, m := range groupHeading.FindAllStringSubmatch(text, -1) {
		groups = append(groups, m[1])
	}
	if !slices.Equal(groups, testGroups) {
		t.Errorf("%s has the groups %q, want %q", testFoldersPage, groups, testGroups)
	}
	folders := make(map[string]bool)
	for _, name := range files(t) {
		if parts := strings.Split(name, "/"); parts[0] == "tests" && len(parts) > 2 {
			folders[parts[1]] = true
		}
	}
	listed := make(map[string]bool)
	for _, m := range testFolderRow.FindAllStringSubmatch(text, -1) {
		folder := m[1]
		switch {
		case m[2] != folder:
			t.Errorf("%s: the line of %s links to %s", testFoldersPage, folder, m[2])
		case listed[folder]:
			t.Errorf("%s lists tests/%s twice", testFoldersPage, folder)
		case !folders[folder]:
			t.Errorf("%s lists tests/%s, which does not exist", testFoldersPage, folder)
		}
		listed[folder] = true
	}
	for folder := range folders {
		if !listed[folder] {
			t.Errorf("%s has no line for tests/%s", testFoldersPage, folder)
		}
	}
}
