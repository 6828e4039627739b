package structure

import (
	"regexp"
	"testing"
	"unicode/utf8"
)

// The patterns are taken apart so that this file does not contain what it looks for.
var unwanted = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`(^|[^A-Za-z0-9_.$}*-])/(wo` + `rk|ro` + `ot)/`),
		"a path of one machine: nobody else has it",
	},
	{
		regexp.MustCompile(`pro` + `xy\.golang\.org|deb\.deb` + `ian\.org|registry\.np` + `mjs\.org|pypi\.o` + `rg|sum\.gol` + `ang\.org`),
		"which registry is asked is the machine's own setting",
	},
	{
		regexp.MustCompile(`(?i)unar` + `bitrated|who wants what is no` + `t there`),
		"say it in plain words: without any GPU memory limit, waits in a queue",
	},
}

func TestUnwantedWords(t *testing.T) {
	for _, name := range files(t) {
		text := read(t, name)
		if !utf8.ValidString(text) {
			continue
		}
		for _, u := range unwanted {
			for _, found := range u.pattern.FindAllString(text, -1) {
				t.Errorf("%s mentions %q: %s", name, found, u.reason)
			}
		}
	}
}
