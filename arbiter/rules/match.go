package rules

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file decides whether a rule matches a process. policy.go calls it. It also has the globs of rules.

// Match selects processes. Each field that is set must match; an empty Match selects all processes. Fields are globs: * matches any
// characters, including slashes, ? matches one character, [a-z] and [!a-z] are classes, and a backslash quotes the next character. A
// malformed glob matches nothing; [CheckGlob] returns what is wrong with it.
type Match struct {
	User      string // name or number
	Group     string // name of any group of the process
	Exe       string // path; a pattern without a slash is compared with the last element
	Command   string // whole command line
	Cgroup    string
	Unit      string
	Container string
}

// matches reports whether m selects p.
func (m Match) matches(p Process) bool {
	one := func(pattern, text string) bool { return pattern == "" || glob(pattern, text) }
	exe := p.Exe
	if !strings.Contains(m.Exe, "/") {
		exe = path.Base(exe)
	}
	return (one(m.User, p.User) || glob(m.User, strconv.FormatUint(uint64(p.UID), 10))) &&
		(m.Group == "" || slices.ContainsFunc(p.Groups, func(g string) bool { return glob(m.Group, g) })) &&
		one(m.Exe, exe) && one(m.Command, p.Command) && m.matchesCgroup(p) &&
		one(m.Unit, p.Unit) && one(m.Container, p.Container)
}

// matchesCgroup reports whether m selects the path of p in any cgroup hierarchy.
func (m Match) matchesCgroup(p Process) bool {
	if m.Cgroup == "" {
		return true
	}
	for at := range p.Cgroups {
		if glob(m.Cgroup, at) {
			return true
		}
	}
	return false
}

// Fields returns the name and the pattern of each field.
func (m Match) Fields() [7][2]string {
	return [...][2]string{
		{"user", m.User}, {"group", m.Group}, {"exe", m.Exe}, {"command", m.Command},
		{"cgroup", m.Cgroup}, {"unit", m.Unit}, {"container", m.Container},
	}
}

// String returns the fields that are set, for messages: "user student, exe python3*".
func (m Match) String() string {
	var parts []string
	for _, f := range m.Fields() {
		if f[1] != "" {
			parts = append(parts, f[0]+" "+f[1])
		}
	}
	if parts == nil {
		return "everybody"
	}
	return strings.Join(parts, ", ")
}

// CheckGlob returns ErrRange with a reason if a pattern is malformed.
func CheckGlob(pattern string) error {
	for rest := pattern; rest != ""; {
		if _, after, ok := element(rest, 0); ok {
			rest = after
			continue
		}
		if rest[0] == '\\' {
			return Wrong(ErrRange, wording.PatternEnds, pattern)
		}
		return Wrong(ErrRange, wording.PatternOpen, pattern, rest)
	}
	return nil
}

// glob reports whether a pattern matches the whole text. On a mismatch it goes back only to the last star, which is enough, so that its
// cost is at most the product of the lengths.
func glob(pattern, text string) bool {
	if CheckGlob(pattern) != nil {
		return false
	}
	star, mark, starred := "", "", false
	for text != "" || pattern != "" {
		if pattern != "" && pattern[0] == '*' {
			star, mark, starred = pattern[1:], text, true
			pattern = star
			continue
		}
		if pattern != "" && text != "" {
			r, size := utf8.DecodeRuneInString(text)
			if hit, after, _ := element(pattern, r); hit {
				pattern, text = after, text[size:]
				continue
			}
		}
		if !starred || mark == "" {
			return false
		}
		_, size := utf8.DecodeRuneInString(mark)
		mark = mark[size:]
		pattern, text = star, mark
	}
	return true
}

// element compares the first element of a pattern with one character. after is the pattern after that element. ok is false if the element
// is malformed.
func element(pattern string, r rune) (hit bool, after string, ok bool) {
	switch pattern[0] {
	case '?', '*':
		return true, pattern[1:], true
	case '[':
		return class(pattern[1:], r)
	case '\\':
		pattern = pattern[1:]
		if pattern == "" {
			return false, "", false
		}
	}
	c, size := utf8.DecodeRuneInString(pattern)
	return c == r, pattern[size:], true
}

// class matches a class without its opening bracket. A closing bracket that comes first stands for itself.
func class(pattern string, r rune) (hit bool, after string, ok bool) {
	negated := pattern != "" && (pattern[0] == '!' || pattern[0] == '^')
	if negated {
		pattern = pattern[1:]
	}
	for first := true; pattern != ""; first = false {
		if pattern[0] == ']' && !first {
			return hit != negated, pattern[1:], true
		}
		low, rest := member(pattern)
		high := low
		if len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			high, rest = member(rest[1:])
		}
		hit = hit || low <= r && r <= high
		pattern = rest
	}
	return false, "", false
}

// member splits the first character of a class off a pattern.
func member(pattern string) (rune, string) {
	if pattern[0] == '\\' && len(pattern) > 1 {
		pattern = pattern[1:]
	}
	r, size := utf8.DecodeRuneInString(pattern)
	return r, pattern[size:]
}
