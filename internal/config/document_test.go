package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/admin/configuration.md describes each key of the configuration, with the type and default
// that are in force. Expected values come from the tables of that page. config_test.go tests the
// keys themselves.

// entry is a row of a table of keys in docs/admin/configuration.md, from which the manual page
// gpuarb.toml(5) is made.
type entry struct {
	section, key, kind, fallback, meaning string
	sections                              []string // sections in the heading above the table; only section counts if the row has it
}

var (
	headingSection = regexp.MustCompile("`\\[\\[?(\\w+)\\]\\]?`")
	keyCell        = regexp.MustCompile("^`([a-z_.]+)`(?: in `\\[(\\w+)\\]`)?$")
)

// entries reads the rows of all tables whose columns are a key, its type and its default.
func entries(t *testing.T) []entry {
	t.Helper()
	text, err := os.ReadFile("../../docs/admin/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	var sections []string
	inside := false
	for line := range strings.SplitSeq(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "## What a rule matches"):
			sections = []string{sectionRule}
		case strings.HasPrefix(line, "## At the top"):
			sections = []string{sectionRoot}
		case strings.HasPrefix(line, "## "):
			sections = nil
			for _, m := range headingSection.FindAllStringSubmatch(line, -1) {
				sections = append(sections, m[1])
			}
		case !strings.HasPrefix(line, "|"):
			inside = false
		case strings.HasPrefix(line, "| key | type | default |"):
			inside = true
		case inside && !strings.HasPrefix(line, "| ---"):
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			m := keyCell.FindStringSubmatch(cells[0])
			if m == nil || len(cells) != 4 {
				t.Fatalf("no row of a key, its type, its default and its meaning: %s", line)
			}
			all = append(all, entry{m[2], m[1], cells[1], cells[2], cells[3], sections})
		}
	}
	return all
}

// in reports whether the entry describes a key of a section.
func (e entry) in(section, key string) bool {
	return e.key == key && slices.Contains(e.sections, section) && (e.section == "" || e.section == section)
}

// values has examples of each type, and a value that the type does not accept.
var values = map[string]struct{ good, bad string }{
	"size": {`"10%"`, `"10s"`}, "bytes": {`"4GiB"`, `"10%"`}, "duration": {`"90s"`, `"4GiB"`}, "integer": {`1`, `"1s"`},
	"boolean": {`true`, `1`}, "word": {"", `"neither"`}, "text": {"", `1`}, "pattern": {`"a*"`, `1`}, "list": {"", `"a"`},
}

// texts has examples for keys whose type says little about the value.
var texts = map[string]string{
	"name": `"a"`, "listen": `"127.0.0.1:0"`, "hosts": `["a.example"]`, "also": `["pocl"]`, "job_mapping_dir": `"/run/x"`,
	"devices":       `[0, "GPU-00000000-0000-0000-0000-000000000000"]`,
	"evict.suspend": `["/bin/true", "a"]`, "evict.resume": `["/bin/true"]`,
	"match.uuid": `"GPU-00000000-0000-0000-0000-000000000000"`, "match.pci": `"0000:01:00.0"`,
}

// TestEveryKeyHasAnEntry checks the page: it has each key once in each section of the key, the
// values have the type that it names, and its default is the real default.
func TestEveryKeyHasAnEntry(t *testing.T) {
	all := entries(t)
	used := map[int]bool{}
	for _, table := range tables {
		section, where := table.name, table.header()
		for _, key := range table.keyNames() {
			found := 0
			for i, e := range all {
				if e.in(section, key) {
					found++
					used[i] = true
					e.check(t, section, where)
				}
			}
			if found != 1 {
				t.Errorf("%s in %s has %d entries in docs/admin/configuration.md, want 1", key, where, found)
			}
		}
	}
	for i, e := range all {
		if !used[i] {
			t.Errorf("docs/admin/configuration.md has %s in %v, which is no key there", e.key, e.sections)
		}
	}
}

func (e entry) check(t *testing.T, section, where string) {
	t.Helper()
	if e.kind == "" || e.fallback == "" || e.meaning == "" {
		t.Errorf("%s in %s: type %q, default %q, meaning %q", e.key, where, e.kind, e.fallback, e.meaning)
	}
	if section == sectionRoot {
		return // the type has only one value
	}
	kind, _, _ := strings.Cut(strings.Fields(e.kind)[0], ":")
	value := values[kind]
	if kind == "word" { // the example is the first word in quotes in the meaning
		value.good = regexp.MustCompile(`"[a-z]+"`).FindString(e.meaning)
	} else if value.good == "" {
		value.good = texts[e.key]
	}
	for text, want := range map[string]bool{value.good: true, value.bad: false} {
		if got := accepts(where, section, e.key, text); got != want {
			t.Errorf("%s is said to be of the type %s: %s = %s in %s is accepted: %t", e.key, e.kind, e.key, text, where, got)
		}
	}
	if code := strings.Split(e.fallback, "`"); len(code) > 1 && code[0] == "" && !accepts(where, section, e.key, code[1]) {
		t.Errorf("%s in %s: its default %s is no value of it", e.key, where, code[1])
	}
	e.checkDefault(t, section, where)
}

// checkDefault compares the default on the page with the default in force without a file.
func (e entry) checkDefault(t *testing.T, section, where string) {
	t.Helper()
	_, inForce, found := strings.Cut(Defaults().String(), "\n["+section+"]\n")
	if !found {
		return
	}
	inForce, _, _ = strings.Cut(inForce, "\n[")
	said := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(e.key) + ` = (.*)$`).FindStringSubmatch(inForce)
	if said == nil {
		return
	}
	same := func(text string) string {
		c, err := load1("schema_version = 1\n" + where + "\n" + e.key + " = " + text + "\n")
		if err != nil {
			t.Errorf("%s = %s: %v", e.key, text, err)
			return ""
		}
		_, text, _ = strings.Cut(c.String(), "\n") // without the names of its files
		return text
	}
	if code := strings.Split(e.fallback, "`"); len(code) != 3 || same(code[1]) != same(said[1]) {
		t.Errorf("%s in %s: the page has the default %s, in force is %s", e.key, where, e.fallback, said[1])
	}
}

// accepts reports whether a file with this setting is accepted.
func accepts(where, section, key, value string) bool {
	more := ""
	if section == sectionDevice && !strings.HasPrefix(key, "match.") {
		more = "match.index = 0\n"
		if key == "memory" {
			more = "match.vendor = \"cpu\"\n"
		}
	}
	if strings.HasPrefix(key, "evict.") && key != "evict.how" && key != "evict.after" {
		for _, other := range []string{`evict.how = "hook"`, `evict.suspend = ["/bin/true"]`, `evict.resume = ["/bin/true"]`} {
			if !strings.HasPrefix(other, key) {
				more += other + "\n"
			}
		}
	}
	_, err := load1("schema_version = 1\n" + where + "\n" + more + key + " = " + value + "\n")
	return err == nil
}

func load1(text string) (*Config, error) {
	l := newLoader()
	l.file("gpuarb.toml", []byte(text), nil, true)
	return l.finish()
}
