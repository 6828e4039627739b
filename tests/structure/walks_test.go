package structure

import (
	"regexp"
	"strings"
	"testing"
)

// This file checks by the source of the shim that each loop over one of its tables goes to its end, because the
// iterator holds a lock in between.

// The iterator over a table holds a lock until the next step, so a loop that is left early would hold it for ever.
var (
	step   = regexp.MustCompile(`ga_(table|self)_(remove_)?next\(&`)
	inLoop = regexp.MustCompile(`^\s*while \(ga_(table|self)_(remove_)?next\(&`)
	leaves = regexp.MustCompile(`\b(break|return|goto)\b`)
)

// unfinished counts the walks over a table in a C source, and returns the lines that leave a walk early or call the iterator outside of a loop.
func unfinished(text string) (walks int, bad []string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !step.MatchString(line) {
			continue
		}
		if walks++; !inLoop.MatchString(line) {
			bad = append(bad, line)
			continue
		}
		indent := line[:strings.Index(line, "while")]
		for _, body := range lines[i+1:] { // clang-format indents the body of the loop
			if !strings.HasPrefix(body, indent+" ") {
				break
			}
			if leaves.MatchString(body) {
				bad = append(bad, body)
			}
		}
	}
	return walks, bad
}

// TestWalksGoToTheirEnd: no loop over a table in the shim is left early.
func TestWalksGoToTheirEnd(t *testing.T) {
	all := 0
	for _, name := range files(t) {
		if !strings.HasPrefix(name, "cshim/") || strings.HasPrefix(name, "cshim/test/") || !strings.HasSuffix(name, ".c") {
			continue
		}
		walks, bad := unfinished(read(t, name))
		all += walks
		for _, line := range bad {
			t.Errorf("%s: a walk over a table is left while a lock is held: %s", name, strings.TrimSpace(line))
		}
	}
	if all == 0 {
		t.Error("no walk was found")
	}
}

// TestUnfinishedWalksAreFound: unfinished finds loops that are left early.
func TestUnfinishedWalksAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"    while (ga_self_next(&walk, &e))\n        n++;\n    return n;\n":                                    0,
		"    while (ga_self_next(&walk, &e)) {\n        if (e.key == key)\n            break;\n    }\n":         1,
		"    while (ga_table_remove_next(&walk, ticket, &e))\n        if (e.bytes)\n            return true;\n": 1,
		"    if (ga_table_next(&walk, &e))\n        n++;\n":                                                     1,
	} {
		if walks, bad := unfinished(text); walks != 1 || len(bad) != want {
			t.Errorf("%d walks and %q found in:\n%s", walks, bad, text)
		}
	}
}
