package rules

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Match picks processes. Every field that is set must match; an empty Match
// matches everybody. Fields are globs: * is any run of characters (slashes too), ?
// is one, [a-z] and [!a-z] are classes, a backslash takes the next character as it
// is. A malformed glob matches nothing; [CheckGlob] says what is wrong with it.
type Match struct {
	User      string // name or number
	Group     string // any group of the process, by name
	Exe       string // path; a pattern without a slash is matched against the last element
	Command   string // the whole command line
	Cgroup    string
	Unit      string
	Container string
}

// matches reports whether p is one of those that m picks.
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

// matchesCgroup reports whether a process has a path in any hierarchy that m picks.
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

// Fields are what is compared, with its pattern.
func (m Match) Fields() [7][2]string {
	return [...][2]string{
		{"user", m.User}, {"group", m.Group}, {"exe", m.Exe}, {"command", m.Command},
		{"cgroup", m.Cgroup}, {"unit", m.Unit}, {"container", m.Container},
	}
}

// String names the fields that are set, for messages: "user student, exe python3*".
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

// CheckGlob tells what is wrong with a pattern: ErrRange with the reason, or nil.
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

// glob reports whether the whole of text matches. On a mismatch it goes back to
// the last star alone, which is enough, so that its cost is at most the product of
// the lengths.
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

// element matches the first element of a pattern against one character. after
// is the pattern behind the element; ok is false where the element is malformed.
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

// class matches a class, whose opening bracket is gone. A closing bracket that
// comes first stands for itself.
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

// member takes one character of a class off a pattern.
func member(pattern string) (rune, string) {
	if pattern[0] == '\\' && len(pattern) > 1 {
		pattern = pattern[1:]
	}
	r, size := utf8.DecodeRuneInString(pattern)
	return r, pattern[size:]
}
