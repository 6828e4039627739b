package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file checks that gpuarbd(8) and docs/reference/exit-codes.md list the same exit codes.
// cmd/gpuarb/documents_test.go does this for gpuarb.

// TestExitCodesInDocuments compares the exit codes of gpuarbd(8) with those in docs/reference/exit-codes.md.
func TestExitCodesInDocuments(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## `gpuarbd`\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var page, manual []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(section, -1) {
		page = append(page, m[1])
	}
	for _, s := range sections() {
		if s.Title == "EXIT STATUS" {
			for _, item := range s.Items {
				manual = append(manual, item.Word)
			}
		}
	}
	if !found || len(page) == 0 || !slices.Equal(page, manual) {
		t.Errorf("the page has the codes %q, gpuarbd(8) has %q", page, manual)
	}
}
