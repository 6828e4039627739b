package structure

import (
	"regexp"
	"strings"
	"testing"
)

// This file checks that each source file begins with a comment that says what it owns. pkgdoc_test.go checks the comments of packages.

var (
	packageClause = regexp.MustCompile(`(?m)^package \w+\n`)
	packageDoc    = regexp.MustCompile(`(?m)^// (Package|Command) `)
	declaration   = regexp.MustCompile(`(?m)^(func|type|var|const)\b`)
	goHead        = regexp.MustCompile(`(?m)^// .*\n(?:// ?.*\n)*\n`) // a comment, and a blank line below it
	licence       = regexp.MustCompile(`^(#!.*\n|(//|#) SPDX.*\n|//\n|#\n|\n)+`)
)

// hasHead reports whether a file begins with a comment about the file.
func hasHead(path, text string) bool {
	if strings.Contains(text[:min(len(text), 600)], "DO NOT EDIT") || strings.Contains(path, "/testdata/") {
		return true
	}
	if !strings.HasSuffix(path, ".go") {
		rest := licence.ReplaceAllString(text, "")
		return strings.HasPrefix(rest, "// ") || strings.HasPrefix(rest, "/*") || strings.HasPrefix(rest, "# ")
	}
	clause := packageClause.FindStringIndex(text)
	if clause == nil || packageDoc.MatchString(text[:clause[0]]) {
		return clause != nil
	}
	body := text[clause[1]:]
	if at := declaration.FindStringIndex(body); at != nil {
		body = body[:at[0]]
	}
	return goHead.MatchString(body)
}

// TestFilesHaveHeads checks each source file of Go, C and the shell.
func TestFilesHaveHeads(t *testing.T) {
	for _, folder := range []string{"accounting", "arbiter", "cmd", "cshim", "daemon", "gpufs", "internal", "ipc", "shim", "tests", "tools", "web"} {
		for _, ext := range []string{".go", ".c", ".h", ".sh"} {
			eachFile(t, folder, ext, func(path, text string) {
				if !hasHead(path, text) {
					t.Errorf("%s does not begin with a comment that says what the file is for", path)
				}
			})
		}
	}
}

func TestHeadsAreFound(t *testing.T) {
	for _, c := range []struct {
		path, text string
		head       bool
	}{
		{"a.go", "package a\n\n// This file adds.\n\nfunc add() {}\n", true},
		{"a.go", "package a\n\nimport \"os\"\n\n// This file adds.\n\nvar x = os.Args\n", true},
		{"a.go", "package a\n\n// add adds.\nfunc add() {}\n", false},
		{"doc.go", "// Package a adds.\npackage a\n", true},
		{"a.c", "// SPDX-License-Identifier: Apache-2.0\n// Adds.\n#include <a.h>\n", true},
		{"a.c", "// SPDX-License-Identifier: Apache-2.0\n#include <a.h>\n", false},
		{"a.sh", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n#\n# a.sh adds.\n", true},
	} {
		if got := hasHead(c.path, c.text); got != c.head {
			t.Errorf("%s: %q: %v, want %v", c.path, c.text, got, c.head)
		}
	}
}
