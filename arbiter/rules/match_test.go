package rules

import (
	"errors"
	"testing"
)

// A rule matches processes by user, group, program, command, cgroup, unit and container, each with a shell pattern. internal/config tests
// how the patterns are written in a file.

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"*", "a/b/c", true},
		{"/user.slice/*.scope", "/user.slice/a/b.scope", true}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false},
		{"?", "ü", true}, {"?", "", false}, {"[a-c]x", "bx", true}, {"[a-c]x", "dx", false}, {"[!a-c]x", "dx", true},
		{"[^a]", "a", false}, {"[]]", "]", true}, {"[a-]", "-", true}, {`\*`, "*", true}, {`\*`, "x", false},
		{`[\]]`, "]", true}, {"[", "[", false}, {`a\`, "a", false}, {"**a", "ba", true},
	} {
		if got := glob(c.pattern, c.text); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.text, got)
		}
	}
	for _, bad := range []string{"[", "a[b", `a\`, "[]", "[!]"} {
		if err := CheckGlob(bad); !errors.Is(err, ErrRange) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := CheckGlob(`a*[b-d]\?`); err != nil {
		t.Error(err)
	}
}

func TestMatch(t *testing.T) {
	p := Process{UID: 1000, User: "bob", Groups: []string{"bob", "video"}, Exe: "/usr/bin/python3.11",
		Command: "python3 train.py", Cgroup: "/user.slice/x.scope", Unit: "x.scope"}
	for _, c := range []struct {
		match Match
		want  bool
	}{
		{Match{}, true}, {Match{User: "bob"}, true}, {Match{User: "1000"}, true}, {Match{User: "eve"}, false},
		{Match{Group: "vid*"}, true}, {Match{Group: "wheel"}, false},
		{Match{Exe: "python3*"}, true}, {Match{Exe: "/usr/bin/*"}, true}, {Match{Exe: "/opt/*"}, false},
		{Match{Command: "* train.py"}, true}, {Match{Cgroup: "/user.slice/*", Unit: "x.scope"}, true},
		{Match{Container: "*"}, true}, {Match{Container: "?*"}, false}, {Match{User: "bob", Exe: "ruby"}, false},
	} {
		if got := c.match.matches(p); got != c.want {
			t.Errorf("%s: %v", c.match, got)
		}
	}
}
