package structure

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/internal/version"
)

// This file checks the form and the length of the entries in CHANGELOG.md, and that the file has the version
// that is built.

// The first version is described as a whole, in at most this many words. Each later change is one bullet.
const (
	firstVersion     = "0.1.0"
	wordsOfTheFirst  = 600
	wordsOfAChange   = 25
	changelogOfUsers = "CHANGELOG.md"
)

var (
	versionHeading = regexp.MustCompile(`(?m)^## (\S+)`)
	changeHeadings = regexp.MustCompile(`^### (Added|Changed|Fixed)$`)
)

// TestChangelog checks the form of CHANGELOG.md, and that its newest version is the version of the build.
func TestChangelog(t *testing.T) {
	text := read(t, changelogOfUsers)
	var newest string
	for _, at := range versionHeading.FindAllStringSubmatchIndex(text, -1) {
		name, section := text[at[2]:at[3]], text[at[1]:]
		section, _, _ = strings.Cut(section, "\n## ")
		if newest == "" && name != "Unreleased" {
			newest = name
		}
		if name == firstVersion {
			if words := len(strings.Fields(section)); words > wordsOfTheFirst {
				t.Errorf("%s has %d words about %s, more than %d", changelogOfUsers, words, name, wordsOfTheFirst)
			}
			continue
		}
		for _, problem := range changes(section) {
			t.Errorf("%s, %s: %s", changelogOfUsers, name, problem)
		}
	}
	if newest != version.Version {
		t.Errorf("the newest version of %s is %q, the build's is %q", changelogOfUsers, newest, version.Version)
	}
}

// changes returns what is wrong with the form of the section of one version.
func changes(section string) (problems []string) {
	bullet := ""
	end := func() {
		if len(strings.Fields(bullet)) > wordsOfAChange {
			problems = append(problems, "a change has more than 25 words: "+bullet)
		}
		bullet = ""
	}
	for line := range strings.Lines(section) {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case strings.HasPrefix(line, "- "):
			end()
			bullet = line[2:]
		case bullet != "" && !strings.HasPrefix(line, "#"):
			bullet += " " + line
		case !changeHeadings.MatchString(line):
			problems = append(problems, "not a change below Added, Changed or Fixed: "+line)
		}
	}
	end()
	return problems
}

// TestChangesAreChecked runs the check of a section on one good section and on three faults.
func TestChangesAreChecked(t *testing.T) {
	long := strings.Repeat("word ", wordsOfAChange+1)
	for section, want := range map[string]int{
		"\n\n### Added\n\n- a flag\n  of two lines\n\n### Fixed\n\n- a fault\n": 0,
		"\n\n### Added\n\n- " + long + "\n":                                     1,
		"\n\n### Improved\n\n- a flag\n":                                        1,
		"\n\nSome words.\n":                                                     1,
	} {
		if got := changes(section); len(got) != want {
			t.Errorf("%q: %q, want %d problems", section, got, want)
		}
	}
}
