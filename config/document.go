package config

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

// The sections that a file may have.
const (
	sectionRoot     = ""
	sectionDefaults = "defaults"
	sectionRule     = "rule"
	sectionDevice   = "device"
	sectionHTTP     = "http"
	sectionPrivacy  = "privacy"
	sectionMetrics  = "metrics"
	sectionDCGM     = "dcgm"
)

// knownSections is for messages.
const knownSections = "[defaults], [[rule]], [[device]], [http], [privacy], [metrics] and [dcgm]"

// section is the settings of one table: the root, one of those that there are once ([defaults],
// [http], [privacy], [metrics], [dcgm]), or one of the [[rule]] or [[device]] tables. However they were spelled (dotted keys, sub-tables, inline
// tables), they arrive flat, in the order of the file.
type section struct {
	name     string
	line     int
	settings []setting
}

// setting is one key with its value and place.
type setting struct {
	key   string // dotted, as "memory.max"
	line  int
	value value
}

// value is a TOML value. A table stands for itself beside the settings inside it, so
// that an empty or misplaced one is noticed.
type value struct {
	kind unstable.Kind
	text string  // decoded for a string, as written for other scalars
	list []value // of an array
}

// document is a file taken apart.
type document struct {
	file     string
	sections []*section
	mistakes Mistakes
	warnings Mistakes
}

// scanner builds a document out of the parser's expressions.
//
// It uses the parser directly, not the decoder into structs, because the decoder
// stops at the first wrong type and does not know lines of keys that are right.
type scanner struct {
	document
	parser  unstable.Parser
	data    []byte
	current *section // where keys go; nil to drop the keys of a wrong section
	prefix  []string // path below current
}

// scan takes a file apart. A file that is no TOML has one mistake: the first.
func scan(file string, data []byte) document {
	s := scanner{data: data}
	s.file = file
	s.current = s.add(sectionRoot, 1)
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

func (d *document) add(name string, line int) *section {
	d.sections = append(d.sections, &section{name: name, line: line})
	return d.sections[len(d.sections)-1]
}

// last returns the latest section of a name, or nil.
func (d *document) last(name string) *section {
	for _, sec := range slices.Backward(d.sections) {
		if sec.name == name {
			return sec
		}
	}
	return nil
}

// enter handles a table header.
func (s *scanner) enter(node *unstable.Node) {
	path, line := s.path(node)
	name := path[0]
	s.current, s.prefix = nil, nil
	shown := joinKey(path)
	switch {
	case node.Kind == unstable.ArrayTable && len(path) == 1 && isList(name):
		s.current = s.add(name, line)
		return
	case node.Kind == unstable.ArrayTable && isSingle(shown):
		s.mistake(line, "[[%s]]: there is only one; write [%s]", shown, shown)
		return
	case node.Kind == unstable.ArrayTable:
		s.mistake(line, "unknown section [[%s]]; known are %s", shown, knownSections)
		return
	}
	s.current = s.table(name, line)
	if s.current == nil {
		return
	}
	s.prefix = path[1:]
	if len(s.prefix) > 0 {
		s.put(s.current, s.prefix, line, value{kind: unstable.InlineTable})
	}
}

// table returns the section that a table header or a key of the root leads into, or
// nil with a mistake noted.
func (s *scanner) table(name string, line int) *section {
	sec := s.last(name)
	switch {
	case isList(name) && sec == nil:
		s.mistake(line, "[%s]: there may be several; write [[%s]]", name, name)
	case isSingle(name) && sec == nil:
		sec = s.add(name, line)
	case !isList(name) && !isSingle(name):
		s.mistake(line, "unknown section [%s]; known are %s", joinKey([]string{name}), knownSections)
		return nil
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
	if sec.name == sectionRoot && (isList(path[0]) || isSingle(path[0])) {
		s.rootSection(node.Value(), path, line)
		return
	}
	s.value(node.Value(), sec, path, line)
}

// rootSection handles the sections written as keys of the root: defaults.scope = …,
// defaults = {…}, rule = [{…}, {…}].
func (s *scanner) rootSection(node *unstable.Node, path []string, line int) {
	name := path[0]
	if len(path) == 1 && isList(name) && node.Kind == unstable.Array {
		s.list(node, name, line)
		return
	}
	sec := s.table(name, line)
	if sec == nil {
		return
	}
	if len(path) == 1 && node.Kind != unstable.InlineTable {
		s.mistake(line, "%s must be a table; write [%s]", name, name)
		return
	}
	s.value(node, sec, path[1:], line)
}

func (s *scanner) list(node *unstable.Node, name string, line int) {
	for it := node.Children(); it.Next(); {
		element := it.Node()
		if element.Kind == unstable.Comment {
			continue
		}
		if element.Kind != unstable.InlineTable {
			s.mistake(line, "%s must be a list of tables; write [[%s]]", name, name)
			return
		}
		sec := s.add(name, s.lineOf(element.Raw))
		s.inline(element, sec, nil)
	}
}

// value stores a value, and the settings inside it when it is an inline table.
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

// isList says whether a section may be there several times.
func isList(name string) bool { return name == sectionRule || name == sectionDevice }

// isSingle says whether a section is there once in a file.
func isSingle(name string) bool {
	return slices.Contains([]string{sectionDefaults, sectionHTTP, sectionPrivacy, sectionMetrics, sectionDCGM}, name)
}

// joinKey spells a path as a dotted key. A part that is no bare key is quoted, so
// that "memory.max" in quotes is not taken for memory.max.
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
