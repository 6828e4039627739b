package main

// This file writes the section "Bodies" of docs/reference/protocol.md: a table for each body of a message, with the
// offset, the length and the meaning of each field. The meanings are the comments in ipc/layout.go. main.go calls it.

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"strings"
)

// The marks around the generated section of the page.
const (
	pageBegin = "<!-- `make generate` writes what follows, from ipc/layout.go. -->\n"
	pageEnd   = "<!-- The generated tables end here. -->\n"
)

// notBodies names the structures that are not bodies of messages. Other tables of the reference have their offsets.
var notBodies = map[string]bool{"Header": true, "LeaseSlot": true, "Shown": true, "Page": true}

// updatePage writes the tables into the page at path.
func updatePage(layout, path string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	tables, err := bodies(layout)
	if err != nil {
		return err
	}
	head, rest, ok := bytes.Cut(page, []byte(pageBegin))
	_, tail, closed := bytes.Cut(rest, []byte(pageEnd))
	if !ok || !closed {
		return errors.New(path + ": the marks of the generated section are not there")
	}
	return os.WriteFile(path, bytes.Join([][]byte{head, []byte(pageBegin), tables, []byte(pageEnd), tail}, nil), 0o644)
}

// bodies returns the tables of all bodies that the Go file at path declares.
func bodies(path string) ([]byte, error) {
	file, g, err := load(path)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			s, ok := spec.(*ast.TypeSpec)
			if !ok || notBodies[s.Name.Name] {
				continue
			}
			if st, ok := s.Type.(*ast.StructType); ok && st.Fields.NumFields() > 0 {
				g.table(s.Name.Name, st)
			}
		}
	}
	g.WriteByte('\n')
	return g.Bytes(), nil
}

// table prints the table of one structure.
func (g *generator) table(name string, source *ast.StructType) {
	st := g.pkg.Scope().Lookup(name).Type().Underlying().(*types.Struct)
	fields := make([]*types.Var, 0, st.NumFields())
	for f := range st.Fields() {
		fields = append(fields, f)
	}
	offsets := g.sizes.Offsetsof(fields)
	fmt.Fprintf(g, "\n**%s**: %d bytes\n\n| offset | bytes | field | type | meaning |\n| --- | --- | --- | --- | --- |\n", name, g.sizes.Sizeof(st))
	for i, f := range fields {
		fmt.Fprintf(g, "| %d | %d | %s | %s | %s |\n", offsets[i], g.sizes.Sizeof(f.Type()), f.Name(), typeName(f.Type()), meaning(source.Fields.List[i]))
	}
}

// typeName returns the type of a field for readers: "uint32", "Token", "32 × JobDevice".
func typeName(t types.Type) string {
	switch u := t.(type) {
	case *types.Named:
		return u.Obj().Name()
	case *types.Array:
		return fmt.Sprintf("%d × %s", u.Len(), typeName(u.Elem()))
	}
	return t.String()
}

// meaning returns the comment behind a field, as a cell of a table.
func meaning(f *ast.Field) string {
	return strings.ReplaceAll(strings.TrimSpace(f.Comment.Text()), "|", "\\|")
}
