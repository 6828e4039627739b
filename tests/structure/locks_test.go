package structure

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file checks the use of the daemon's lock by the source of package daemon: which calls may run under it,
// which functions need it, and which file may take it. Calls are followed by name only.

// slow matches calls that must not run under the daemon's lock while clients are served, because they use
// the disk, other processes or the driver, or make and map memory.
var slow = regexp.MustCompile(`^(unix\.(Open|Mmap\w*|Munmap|MemfdCreate|Fallocate|Ftruncate|Fstat|Stat|Read|Pread|Write|PidfdOpen)` +
	`|os\.(Open\w*|ReadFile|ReadDir|Readlink|Stat|WriteFile)|filepath\.(Glob|WalkDir)` +
	`|ipc\.(NewPage|OpenPage|ReadPage|Reply|Notice|Listen\w*)|config\.Load` +
	`|d\.inv\.(Facts|Read|Processes|TaskOwner|Descends)|(c|cl\.conn)\.(ReplyError|ReplySnapshot|Notice))$`)

// beforeClients are functions that run only before the first client is served, or after the last.
var beforeClients = regexp.MustCompile(`^(recover\w*|alive|findPage|startPages|dismissLocked)$`)

// function is a function of the daemon with the calls in its body.
type function struct {
	decl  *ast.FuncDecl
	calls map[string]bool // as they are written, "d.arb.Query"
}

func daemonFunctions(t *testing.T) map[string]function {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "daemon", "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	all := map[string]function{}
	for _, name := range paths {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				all[f.Name.Name] = function{f, callsIn(f.Body)}
			}
		}
	}
	return all
}

// callsIn returns the calls that a body makes itself, without the calls in functions that it passes on.
func callsIn(body ast.Node) map[string]bool {
	calls := map[string]bool{}
	ast.Inspect(body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncLit, *ast.GoStmt:
			return false
		case *ast.CallExpr:
			if name := written(node.Fun); name != "" {
				calls[name] = true
			}
		}
		return true
	})
	return calls
}

// written returns a name as it is spelled in the source: "d.lock".
func written(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if of := written(e.X); of != "" {
			return of + "." + e.Sel.Name
		}
	}
	return ""
}

// isLocked reports whether a function's name says that its caller must hold the daemon's lock.
func isLocked(name string) bool { return strings.HasSuffix(name, "Locked") }

// takesLock reports whether a call takes the daemon's lock, for a client's request or for another reason.
func takesLock(call string) bool { return strings.HasSuffix(call, "d.lock") || call == "cl.takeLock" }

// underLock reports whether a function runs under the daemon's lock from its beginning: its name says so, or it takes
// the lock and keeps it to its end.
func (f function) underLock() bool {
	if isLocked(f.decl.Name.Name) {
		return true
	}
	if len(f.decl.Body.List) < 2 {
		return false
	}
	lock, ok := f.decl.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := lock.X.(*ast.CallExpr)
	if !ok || !takesLock(written(call.Fun)) {
		return false
	}
	later, ok := f.decl.Body.List[1].(*ast.DeferStmt)
	return ok && strings.HasSuffix(written(later.Call.Fun), "d.unlock")
}

// TestNothingSlowUnderTheLock follows the daemon's calls under its lock, by the names of its functions, and reports slow ones.
func TestNothingSlowUnderTheLock(t *testing.T) {
	all := daemonFunctions(t)
	seen := map[string]string{} // by whom it is called under the lock
	var queue []string
	for name, f := range all {
		if f.underLock() && !beforeClients.MatchString(name) {
			seen[name] = ""
			queue = append(queue, name)
		}
	}
	if len(queue) < 40 {
		t.Fatalf("only %d functions are known to run under the lock", len(queue))
	}
	slices.Sort(queue)
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		for call := range all[name].calls {
			if slow.MatchString(call) {
				t.Errorf("%s runs under the daemon's lock and calls %s%s", name, call, calledBy(seen, name))
			}
			callee := call[strings.LastIndex(call, ".")+1:]
			_, known := all[callee]
			_, done := seen[callee]
			ours := callee == call || slices.Contains([]string{"d", "cl", "cl.d", "s", "p", "j"}, call[:max(0, strings.LastIndex(call, "."))])
			if known && !done && ours && !beforeClients.MatchString(callee) {
				seen[callee] = name
				queue = append(queue, callee)
			}
		}
	}
}

// TestLockedSaysSo: a function that calls the arbiter, or a function that needs the daemon's lock, takes the lock or has a name that ends in Locked.
func TestLockedSaysSo(t *testing.T) {
	known := 0
	for name, f := range daemonFunctions(t) {
		takes, wants := false, ""
		for call := range f.calls {
			of := call[:max(0, strings.LastIndex(call, "."))]
			takes = takes || takesLock(call)
			if strings.HasSuffix(of, "d.arb") || isLocked(call) {
				wants = call
			}
		}
		if known += len(wants); wants != "" && !takes && !isLocked(name) && name != "unlock" {
			t.Errorf("%s calls %s, does not take the lock, and is not called %sLocked", name, wants, name)
		}
	}
	if known == 0 {
		t.Error("no function is known to need the lock")
	}
}

// TestTheLockHandsOn: the daemon's unlock delivers what the arbiter decided. Therefore only lock.go
// takes and releases the mutex and reads the decisions.
func TestTheLockHandsOn(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "daemon", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, name := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			of, ok := node.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"mutex", "Decisions", "Events"}, of.Sel.Name) {
				return true
			}
			if found[of.Sel.Name]++; filepath.Base(name) != "lock.go" {
				t.Errorf("%s: %s is for the daemon's lock and unlock alone", filepath.Base(name), written(of))
			}
			return true
		})
	}
	if found["mutex"] != 2 || found["Decisions"] != 1 || found["Events"] != 1 {
		t.Errorf("the test no longer finds the lock, the decisions or the events: %v", found)
	}
}

// calledBy describes the chain of calls to a function.
func calledBy(seen map[string]string, name string) string {
	text := ""
	for by := seen[name]; by != ""; by = seen[by] {
		text += ", called by " + by
	}
	return text
}
