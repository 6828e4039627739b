package events

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// These tests hold that docs/reference/events.schema.json refuses malformed lines, and that the reference page has each
// of its fields and kinds. kinds_test.go checks the lines of a daemon against it.

// schema is docs/reference/events.schema.json.
type schema struct{ *jsonschema.Resolved }

// load reads the schema.
func load(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/events.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return schema{resolved}
}

// check validates a line by the schema, and returns the violation.
func (s schema) check(line string) error {
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		return err
	}
	return s.Validate(v)
}

// TestSchemaRefuses: the schema refuses wrong lines.
func TestSchemaRefuses(t *testing.T) {
	s := load(t)
	for line, good := range map[string]bool{
		`{"v":1,"time":"x","kind":"configured","text":"x"}`:                         true,
		`{"v":2,"time":"x","kind":"configured","text":"x"}`:                         false,
		`{"v":1,"time":"x","kind":"denied","text":"x"}`:                             false,
		`{"v":1,"time":"x","kind":"configured"}`:                                    false,
		`{"v":1,"time":"x","kind":"refused","text":"x"}`:                            false, // has no reason
		`{"v":1,"time":"x","kind":"configured","text":"x","pid":-1}`:                false,
		`{"v":1,"time":"x","kind":"configured","text":"x","more":1}`:                false,
		`{"v":1,"time":"x","kind":"configured","text":"x","parties":[{"job":"x"}]}`: false,
	} {
		if err := s.check(line); (err == nil) != good {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestPage: docs/reference/events.md has a row for each field and each kind of the schema.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	s := load(t)
	fields, kinds, _ := strings.Cut(string(page), "\n## Kinds\n")
	named := func(text, name string) bool {
		for row := range strings.Lines(text) {
			if cell, _, ok := strings.Cut(strings.TrimPrefix(row, "| "), " | "); ok && strings.Contains(cell, "`"+name+"`") {
				return true
			}
		}
		return false
	}
	for name := range s.Schema().Properties {
		if !named(fields, name) {
			t.Errorf("no row for the field %s", name)
		}
	}
	for _, kind := range s.Schema().Properties["kind"].Enum {
		if !named(kinds, kind.(string)) {
			t.Errorf("no row for the kind %s", kind)
		}
	}
}
