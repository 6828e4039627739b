package figures

import (
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// This file makes docs/reference/snapshot.schema.json from the types of a snapshot and their comments, and checks that the file is current.
// tests/e2e compares the snapshots of real daemons with it.

var update = flag.Bool("update", false, "write docs/reference/snapshot.schema.json anew")

// comments returns the comments of all fields of the package's types, by "Type.Field", on one line.
func comments(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return false
			}
			for _, f := range st.Fields.List {
				for _, name := range f.Names {
					all[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
				}
			}
			return false
		})
	}
	return all
}

// schemaOf returns the JSON schema of a type, as encoding/json writes its values.
func schemaOf(typ reflect.Type, meanings map[string]string) map[string]any {
	switch typ.Kind() {
	case reflect.Pointer:
		return schemaOf(typ.Elem(), meanings)
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": schemaOf(typ.Elem(), meanings)}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" {
				continue
			}
			s := schemaOf(f.Type, meanings)
			if meaning := meanings[typ.Name()+"."+f.Name]; meaning != "" {
				s["description"] = meaning
			}
			properties[name] = s
			if !slices.Contains(strings.Split(options, ","), "omitempty") {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	return map[string]any{"type": "integer"}
}

// TestSchema: docs/reference/snapshot.schema.json describes a snapshot as this package encodes it.
func TestSchema(t *testing.T) {
	schema := schemaOf(reflect.TypeFor[Snapshot](), comments(t))
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "A snapshot, as the daemon sends it for the message Snapshot"
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const path = "../../docs/reference/snapshot.schema.json"
	if *update {
		if err := os.WriteFile(path, append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(got)) != string(want) {
		t.Errorf("%s is not what a snapshot is (%v); go test ./internal/figures -run TestSchema -update writes it anew", path, err)
	}
}
