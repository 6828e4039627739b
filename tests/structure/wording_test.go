package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// This file checks that the arbiter takes its sentences for users from package arbiter/wording, so that they
// can be read and changed in one place.

// words matches the words of a text; the verbs of fmt do not match.
var words = regexp.MustCompile(`(^|[ (])[A-Za-z]{2,}`)

// TestSentencesAreInWording: sentences of the arbiter for users are in one package. Three words make a
// sentence; the kinds of errors are shorter.
func TestSentencesAreInWording(t *testing.T) {
	for _, name := range files(t) {
		dir := path.Dir(name)
		if dir != "arbiter" && dir != "arbiter/rules" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		tokens := token.NewFileSet()
		file, err := parser.ParseFile(tokens, name, read(t, name), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && written(call.Fun) == "errors.New" {
				return false
			}
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				if said, _ := strconv.Unquote(text.Value); len(words.FindAllString(said, 3)) == 3 && !strings.HasPrefix(said, "arbiter: ") {
					t.Errorf("%s: %q belongs to arbiter/wording", tokens.Position(text.Pos()), said)
				}
			}
			return true
		})
	}
}
