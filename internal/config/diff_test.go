package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Two configurations differ by the keys that a user changed, by rule and device, and by the order
// of rules, but not by spelling. `gpuarb config diff` prints these differences.

// written returns the configuration of a file with that text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gpuarb.toml")
	if err := os.WriteFile(path, []byte("schema_version = 1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c.String()
}

func TestDifferences(t *testing.T) {
	const a, b = "[[rule]]\nname = \"a\"\nmatch.user = \"ann\"\nmemory.max = \"1G\"\n", "[[rule]]\nmatch.user = \"bob\"\npriority = 2\n"
	for _, test := range []struct {
		name       string
		old, fresh string
		want       []Difference
	}{
		{"another file of the same content", a + b, "# a word\n" + a + b, nil},
		{"a default", "", "[defaults]\nmemory.max = \"4G\"\n", []Difference{{"defaults", "memory.max", `"max"`, `"4GiB"`}}},
		{"a key of a rule that has a name", a, "[[rule]]\nname = \"a\"\nmatch.user = \"amy\"\n",
			[]Difference{{`rule "a"`, "match.user", `"ann"`, `"amy"`}, {`rule "a"`, "memory.max", `"1GiB"`, ""}}},
		{"a rule more", a, a + b, []Difference{{`rule match.user = "bob"`, "match.user", "", `"bob"`}, {`rule match.user = "bob"`, "priority", "", "2"}}},
		{"a rule less", b, "", []Difference{{`rule match.user = "bob"`, "match.user", `"bob"`, ""}, {`rule match.user = "bob"`, "priority", "2", ""}}},
		{"the order, which decides", a + b, b + a, []Difference{{"rules", "order", `rule "a", rule match.user = "bob"`, `rule match.user = "bob", rule "a"`}}},
		{"a second of the same match", b, b + b, []Difference{{`rule match.user = "bob" (2)`, "match.user", "", `"bob"`}, {`rule match.user = "bob" (2)`, "priority", "", "2"}}},
		{"a part of which there is one", "", "[privacy]\ncommands = \"own\"\n", []Difference{{"privacy", "commands", `"all"`, `"own"`}}},
		{"a device", "[[device]]\nmatch.index = 0\nslots.max = 1\n", "[[device]]\nmatch.index = 0\nslots.max = 2\n",
			[]Difference{{"device match.index = 0", "slots.max", "1", "2"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := Differences(written(t, test.old), written(t, test.fresh)); !slices.Equal(got, test.want) {
				t.Errorf("differences\n%q\nwant\n%q", got, test.want)
			}
		})
	}
}
