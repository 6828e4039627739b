package structure

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// This file keeps paths of single machines, addresses of registries, and obsolete terms out of all files.

// The words are split here, so that this file does not contain the unwanted words themselves.
var unwanted = []struct {
	words  []string       // in lower case
	within *regexp.Regexp // the word is unwanted only inside a match of this; nil: everywhere
	reason string
}{
	{
		[]string{"/wo" + "rk/", "/ro" + "ot/"}, regexp.MustCompile(`(^|[^A-Za-z0-9_.$}*-])/(wo` + `rk|ro` + `ot)/`),
		"a path of one machine: nobody else has it",
	},
	{
		[]string{"pro" + "xy.golang.org", "deb.deb" + "ian.org", "registry.np" + "mjs.org", "pypi.o" + "rg", "sum.gol" + "ang.org"}, nil,
		"which registry is asked is the machine's own setting",
	},
	{
		[]string{"unar" + "bitrated", "who wants what is no" + "t there"}, nil,
		"say it in plain words: without any GPU memory limit, waits in a queue",
	},
}

// TestUnwantedWords: no file contains an unwanted word.
func TestUnwantedWords(t *testing.T) {
	for _, name := range files(t) {
		text := read(t, name)
		if !utf8.ValidString(text) {
			continue
		}
		small := strings.ToLower(text)
		for _, u := range unwanted {
			for _, word := range u.words {
				if strings.Contains(small, word) && (u.within == nil || u.within.MatchString(text)) {
					t.Errorf("%s mentions %q: %s", name, word, u.reason)
				}
			}
		}
	}
}
