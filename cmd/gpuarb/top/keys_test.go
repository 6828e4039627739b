package top

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file checks that docs/reference/top.md has the same keys as the code. top_test.go presses
// them.

// keysInCode returns the keys that pressKey, move and viewKey handle. It finds them in the source:
// the strings after case, and the keys of the map of steps in move.
func keysInCode(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	add := func(e ast.Expr) {
		if text, ok := e.(*ast.BasicLit); ok && text.Kind == token.STRING {
			key, _ := strconv.Unquote(text.Value)
			found[key] = true
		}
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !slices.Contains([]string{"pressKey", "move", "viewKey"}, f.Name.Name) {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CaseClause:
				for _, e := range n.List {
					add(e)
				}
			case *ast.KeyValueExpr:
				add(n.Key)
			}
			return true
		})
	}
	return found
}

// TestEveryKeyIsOnThePage compares the keys of the code with the first column of the table in
// docs/reference/top.md.
func TestEveryKeyIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/top.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| key | does |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	onPage := make(map[string]bool)
	for line := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			name := strings.NewReplacer("page up", "pgup", "page down", "pgdown").Replace(m[1])
			if regexp.MustCompile(`^F\d+$`).MatchString(name) {
				name = strings.ToLower(name)
			}
			onPage[name] = true
		}
	}
	inCode := keysInCode(t)
	if !maps.Equal(inCode, onPage) {
		t.Errorf("docs/reference/top.md has the keys %q\nthe code has %q", slices.Sorted(maps.Keys(onPage)), slices.Sorted(maps.Keys(inCode)))
	}
}
