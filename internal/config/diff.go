package config

// This file compares two configurations that String wrote. `gpuarb config diff` and the daemon's
// log use it.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Part is a section of a text of [Config.String]: a section such as [defaults], or a [[device]] or
// [[rule]] section.
type Part struct {
	Name string // for messages: "defaults", `rule "students"`, `device match.index = 0`
	Keys []Key  // in the order of the text
	many bool   // the section may occur several times
}

// Key is a key and its value, as written in a file.
type Key struct{ Name, Value string }

// Is reports whether the part is a section of the kind "device" or "rule".
func (p Part) Is(kind string) bool { return strings.HasPrefix(p.Name, kind+" ") }

// Value returns the value of a key of the part; "": the part does not have the key.
func (p Part) Value(key string) string {
	for _, k := range p.Keys {
		if k.Name == key {
			return k.Value
		}
	}
	return ""
}

// Parts splits a text of [Config.String]. The text may come from another version, so the values are
// not interpreted.
func Parts(text string) []Part {
	var all []Part
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "[") {
			all = append(all, Part{Name: strings.Trim(line, "[]"), many: strings.HasPrefix(line, "[[")})
		} else if key, value, ok := strings.Cut(line, " = "); ok && len(all) > 0 && !strings.HasPrefix(line, "#") {
			last := &all[len(all)-1]
			last.Keys = append(last.Keys, Key{key, value})
		}
	}
	seen := map[string]int{}
	for i := range all {
		all[i].Name = all[i].title()
		if seen[all[i].Name]++; seen[all[i].Name] > 1 {
			all[i].Name += fmt.Sprintf(" (%d)", seen[all[i].Name])
		}
	}
	return all
}

// Named returns the part with a name, or an empty part.
func Named(parts []Part, name string) Part {
	if i := slices.IndexFunc(parts, func(p Part) bool { return p.Name == name }); i >= 0 {
		return parts[i]
	}
	return Part{}
}

// title returns the name of a part for messages: its own name, or what it matches.
func (p Part) title() string {
	if !p.many {
		return p.Name
	}
	if name := p.Value("name"); name != "" {
		return p.Name + " " + name
	}
	var matches []string
	for _, k := range p.Keys {
		if strings.HasPrefix(k.Name, "match.") {
			matches = append(matches, k.Name+" = "+k.Value)
		}
	}
	return p.Name + " " + cmp.Or(strings.Join(matches, ", "), "for all")
}

// Difference is a key whose values differ in two configurations.
type Difference struct {
	Part, Key  string
	Old, Fresh string // as in a file; "": the key is missing
}

// orderKey stands for the order of the parts, which matters because the first match counts.
const orderKey = "order"

// Differences compares two texts of [Config.String].
func Differences(old, fresh string) []Difference {
	var all []Difference
	a, b := Parts(old), Parts(fresh)
	both := func(p, q []Part) (names []string) {
		for _, part := range p {
			if Named(q, part.Name).Name != "" {
				names = append(names, part.Name)
			}
		}
		return names
	}
	for _, p := range a {
		q := Named(b, p.Name)
		for _, k := range p.Keys {
			if value := q.Value(k.Name); value != k.Value {
				all = append(all, Difference{p.Name, k.Name, k.Value, value})
			}
		}
	}
	for _, q := range b {
		p := Named(a, q.Name)
		for _, k := range q.Keys {
			if p.Value(k.Name) == "" {
				all = append(all, Difference{q.Name, k.Name, "", k.Value})
			}
		}
	}
	for _, kind := range []string{sectionDevice, sectionRule} {
		of := func(name string) bool { return !Part{Name: name}.Is(kind) }
		was, is := slices.DeleteFunc(both(a, b), of), slices.DeleteFunc(both(b, a), of)
		if !slices.Equal(was, is) {
			all = append(all, Difference{kind + "s", orderKey, strings.Join(was, ", "), strings.Join(is, ", ")})
		}
	}
	return all
}
