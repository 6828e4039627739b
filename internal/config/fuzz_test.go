package config

import (
	"strings"
	"testing"
)

// No text of a configuration file breaks the reader, whatever it contains. mistake_test.go has the
// messages for known mistakes.

// FuzzParse checks that a file is accepted, or has mistakes of one line each at lines of the file.
// A configuration that was accepted is written and read back unchanged.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add("schema_version = 1\nrule = [{match = {user = \"a\"}}]\ndefaults.memory.max = 5")
	f.Add("[[rule]]\n[rule.match]\nuser='x'\n[defaults]\nmemory={}")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := loadText("f.toml", text)
		if err == nil {
			checkRoundTrip(t, config)
			return
		}
		mistakes, ok := err.(Mistakes)
		if !ok || len(mistakes) == 0 {
			t.Fatalf("the error is %T %v", err, err)
		}
		for _, m := range mistakes {
			if strings.Contains(m.Reason, "\n") || m.Line < 0 || m.Line > strings.Count(text, "\n")+1 {
				t.Errorf("mistake %+v of a file of %d lines", m, strings.Count(text, "\n")+1)
			}
		}
	})
}
