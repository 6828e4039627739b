package config

// This file parses a TOML file into sections and settings with their lines. load.go calls scan.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// section holds the settings of one table: the top of the file, a single section ([defaults],
// [http], [privacy], [metrics], [dcgm]), or one of the [[rule]] or [[device]] sections. Dotted
// keys, sub-tables and inline tables all become flat settings, in the order of the file.
type section struct {
	*table
	line     int
	settings []setting
}

// setting is a key with its value and line.
type setting struct {
	key   string // dotted, such as "memory.max"
	line  int
	value value
}

// document is a parsed file.
type document struct {
	file     string
	sections []*section
	mistakes Mistakes
	warnings Mistakes
}

// scanner builds a document from the expressions of the parser.
//
// It uses the parser directly instead of the decoder into structs. The decoder stops at the first
// wrong type, and does not know the lines of correct keys.
type scanner struct {
	document
	parser  unstable.Parser
	data    []byte
	current *section // section of the next keys; nil: a wrong section, whose keys are dropped
	prefix  []string // path below current
}

// scan parses a file. If the file is not valid TOML, only the first mistake is returned.
func scan(file string, data []byte) document {
	s := scanner{data: data}
	s.file = file
	s.current = s.add(&tables[0], 1)
	var any map[string]any
	if err := toml.Unmarshal(data, &any); err != nil {
		s.syntax(err)
		return s.document
	}
	s.parser.Reset(data)
	for s.parser.NextExpression() {
		node := s.parser.Expression()
		switch node.Kind {
		case unstable.Table, unstable.ArrayTable:
			s.enter(node)
		case unstable.KeyValue:
			s.keyValue(node, s.current, s.prefix)
		}
	}
	if err := s.parser.Error(); err != nil {
		s.syntax(err)
	}
	return s.document
}

func (s *scanner) syntax(err error) {
	line := 0
	var positioned *toml.DecodeError
	if errors.As(err, &positioned) {
		line, _ = positioned.Position()
	}
	s.mistake(line, "no valid TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
}

func (d *document) mistake(line int, format string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{d.file, line, fmt.Sprintf(format, args...)})
}

func (d *document) add(t *table, line int) *section {
	d.sections = append(d.sections, &section{table: t, line: line})
	return d.sections[len(d.sections)-1]
}

// last returns the latest section of a table, or nil.
func (d *document) last(t *table) *section {
	for _, sec := range slices.Backward(d.sections) {
		if sec.table == t {
			return sec
		}
	}
	return nil
}

// enter handles a table header.
func (s *scanner) enter(node *unstable.Node) {
	path, line := s.path(node)
	t := tableOf(path[0])
	s.current, s.prefix = nil, nil
	switch {
	case node.Kind == unstable.ArrayTable && (len(path) > 1 || t == nil):
		s.mistake(line, "unknown section [[%s]]; known are %s", joinKey(path), knownTables())
		return
	case node.Kind == unstable.ArrayTable && t.many:
		s.current = s.add(t, line)
		return
	case node.Kind == unstable.ArrayTable:
		s.mistake(line, "[[%s]]: there is only one; write [%s]", t.name, t.name)
		return
	}
	s.current = s.section(path[0], line)
	if s.current == nil {
		return
	}
	s.prefix = path[1:]
	if len(s.prefix) > 0 {
		s.put(s.current, s.prefix, line, value{kind: unstable.InlineTable})
	}
}

// section returns the section of a table header or of a key at the top. If there is none, it
// records a mistake and returns nil.
func (s *scanner) section(name string, line int) *section {
	t := tableOf(name)
	if t == nil {
		s.mistake(line, "unknown section [%s]; known are %s", joinKey([]string{name}), knownTables())
		return nil
	}
	sec := s.last(t)
	switch {
	case sec != nil:
	case t.many:
		s.mistake(line, "[%s]: there may be several; write [[%s]]", name, name)
	default:
		sec = s.add(t, line)
	}
	return sec
}

// keyValue handles key = value below prefix in sec.
func (s *scanner) keyValue(node *unstable.Node, sec *section, prefix []string) {
	path, line := s.path(node)
	if sec == nil {
		return
	}
	path = append(slices.Clone(prefix), path...)
	if sec.name == sectionRoot && tableOf(path[0]) != nil {
		s.rootSection(node.Value(), path, line)
		return
	}
	s.value(node.Value(), sec, path, line)
}

// rootSection handles sections that are written as keys at the top: defaults.scope = …, defaults =
// {…}, rule = [{…}, {…}].
func (s *scanner) rootSection(node *unstable.Node, path []string, line int) {
	name := path[0]
	if t := tableOf(name); len(path) == 1 && t.many && node.Kind == unstable.Array {
		s.list(node, t, line)
		return
	}
	sec := s.section(name, line)
	if sec == nil {
		return
	}
	if len(path) == 1 && node.Kind != unstable.InlineTable {
		s.mistake(line, "%s must be a table; write [%s]", name, name)
		return
	}
	s.value(node, sec, path[1:], line)
}

func (s *scanner) list(node *unstable.Node, t *table, line int) {
	for it := node.Children(); it.Next(); {
		element := it.Node()
		if element.Kind == unstable.Comment {
			continue
		}
		if element.Kind != unstable.InlineTable {
			s.mistake(line, "%s must be a list of tables; write [[%s]]", t.name, t.name)
			return
		}
		sec := s.add(t, s.lineOf(element.Raw))
		s.inline(element, sec, nil)
	}
}

// value stores a value. If the value is an inline table, the settings in it are stored too.
func (s *scanner) value(node *unstable.Node, sec *section, path []string, line int) {
	if len(path) > 0 {
		s.put(sec, path, line, valueOf(node))
	}
	if node.Kind == unstable.InlineTable {
		s.inline(node, sec, path)
	}
}

func valueOf(node *unstable.Node) value {
	v := value{kind: node.Kind, text: string(node.Data)}
	if node.Kind != unstable.Array {
		return v
	}
	for it := node.Children(); it.Next(); {
		if it.Node().Kind != unstable.Comment {
			v.list = append(v.list, valueOf(it.Node()))
		}
	}
	return v
}

func (s *scanner) inline(node *unstable.Node, sec *section, path []string) {
	for it := node.Children(); it.Next(); {
		if it.Node().Kind == unstable.KeyValue {
			s.keyValue(it.Node(), sec, path)
		}
	}
}

func (s *scanner) put(sec *section, path []string, line int, v value) {
	sec.settings = append(sec.settings, setting{joinKey(path), line, v})
}

// path returns the dotted key of a node, and the line of its first part.
func (s *scanner) path(node *unstable.Node) (path []string, line int) {
	for it := node.Key(); it.Next(); {
		if path == nil {
			line = s.lineOf(it.Node().Raw)
		}
		path = append(path, string(it.Node().Data))
	}
	return path, line
}

func (s *scanner) lineOf(r unstable.Range) int {
	return 1 + bytes.Count(s.data[:r.Offset], []byte{'\n'})
}

// joinKey joins a path to a dotted key. A part that is not a bare key is quoted, so that the single
// key "memory.max" in quotes differs from memory.max.
func joinKey(path []string) string {
	parts := make([]string, len(path))
	for i, part := range path {
		parts[i] = part
		if part == "" || strings.ContainsFunc(part, notBare) {
			parts[i] = strconv.Quote(part)
		}
	}
	return strings.Join(parts, ".")
}

func notBare(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
}
