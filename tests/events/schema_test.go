package events

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// schema is docs/events.schema.json, as far as it uses of JSON Schema; load fails on anything else.
type schema struct {
	Schema      string `json:"$schema"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Format      string `json:"format"`

	Ref        string             `json:"$ref"`
	Defs       map[string]*schema `json:"$defs"`
	Type       string             `json:"type"`
	Const      any                `json:"const"`
	Enum       []any              `json:"enum"`
	Minimum    *float64           `json:"minimum"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Additional *bool              `json:"additionalProperties"`
	Items      *schema            `json:"items"`
	AllOf      []*schema          `json:"allOf"`
	If         *schema            `json:"if"`
	Then       *schema            `json:"then"`
}

// load reads the schema.
func load(t *testing.T) *schema {
	t.Helper()
	f, err := os.Open("../../docs/events.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s schema
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// check holds a line against the schema, and returns what is wrong.
func (s *schema) check(line string) error {
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		return err
	}
	return s.holds(s, v, "")
}

func (s *schema) holds(root *schema, v any, at string) error {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return root.Defs[name].holds(root, v, at)
	}
	if s.Const != nil && v != s.Const || s.Enum != nil && !slices.Contains(s.Enum, v) {
		return fmt.Errorf("%s is %v", at, v)
	}
	if err := s.typed(root, v, at); err != nil {
		return err
	}
	for _, part := range s.AllOf {
		if err := part.holds(root, v, at); err != nil {
			return err
		}
	}
	if s.If != nil && s.If.holds(root, v, at) == nil {
		return s.Then.holds(root, v, at)
	}
	return nil
}

func (s *schema) typed(root *schema, v any, at string) error {
	ok := true
	switch s.Type {
	case "string":
		_, ok = v.(string)
	case "boolean":
		_, ok = v.(bool)
	case "integer":
		n, is := v.(float64)
		ok = is && n == float64(int64(n)) && (s.Minimum == nil || n >= *s.Minimum)
	case "array":
		all, is := v.([]any)
		ok = is
		for i, x := range all {
			if err := s.Items.holds(root, x, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case "object":
		_, ok = v.(map[string]any)
	}
	if !ok {
		return fmt.Errorf("%s: %v is no %s", at, v, s.Type)
	}
	if object, is := v.(map[string]any); is {
		return s.fields(root, object, at)
	}
	return nil
}

func (s *schema) fields(root *schema, object map[string]any, at string) error {
	for _, name := range s.Required {
		if _, there := object[name]; !there {
			return fmt.Errorf("%s has no %s", at, name)
		}
	}
	for name, x := range object {
		if p := s.Properties[name]; p != nil {
			if err := p.holds(root, x, at+"."+name); err != nil {
				return err
			}
		} else if s.Additional != nil && !*s.Additional {
			return fmt.Errorf("%s has %s, which is not in the schema", at, name)
		}
	}
	return nil
}

// TestSchemaRefuses: the schema is one that something can be against.
func TestSchemaRefuses(t *testing.T) {
	s := load(t)
	for line, want := range map[string]string{
		`{"v":1,"time":"x","kind":"configured","text":"x"}`:                         "",
		`{"v":2,"time":"x","kind":"configured","text":"x"}`:                         ".v is 2",
		`{"v":1,"time":"x","kind":"denied","text":"x"}`:                             ".kind is denied",
		`{"v":1,"time":"x","kind":"configured"}`:                                    "has no text",
		`{"v":1,"time":"x","kind":"refused","text":"x"}`:                            "has no reason",
		`{"v":1,"time":"x","kind":"configured","text":"x","pid":-1}`:                "is no integer",
		`{"v":1,"time":"x","kind":"configured","text":"x","more":1}`:                "not in the schema",
		`{"v":1,"time":"x","kind":"configured","text":"x","parties":[{"job":"x"}]}`: ".parties[0] has no holds",
	} {
		if err := s.check(line); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestPage: docs/events.md has a row for each field and each kind of the schema.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/events.md")
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
	for name := range s.Properties {
		if !named(fields, name) {
			t.Errorf("no row for the field %s", name)
		}
	}
	for _, kind := range s.Properties["kind"].Enum {
		if !named(kinds, kind.(string)) {
			t.Errorf("no row for the kind %s", kind)
		}
	}
}
