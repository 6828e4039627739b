package config

import (
	"strings"
	"testing"
)

// FuzzParseSize: what is taken is spelled back to the same; nothing panics.
func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"4G", "4GiB", "4096M", "1.5G", "25%", "12.5%", "max", "0", "-1", "9223372036854775807", "4GB", "1e9", "0.1K", "", ".", "1..2", "4 GiB"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := ParseSize(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("ParseSize(%q): the message has several lines: %q", text, err)
			}
			return
		}
		if size.PerMille > 1000 {
			t.Errorf("ParseSize(%q) = %+v: more than a whole device", text, size)
		}
		again, err := ParseSize(FormatSize(size))
		if err != nil || again != size {
			t.Errorf("ParseSize(%q) = %+v; spelled %q it reads as %+v, %v", text, size, FormatSize(size), again, err)
		}
	})
}

// FuzzParse: a file is taken or has mistakes, each in one line and inside the file;
// what is taken is spelled back to the same.
func FuzzParse(f *testing.F) {
	f.Add(everything)
	f.Add("schema_version = 1\nrule = [{match = {user = \"a\"}}]\ndefaults.memory.max = 5")
	f.Add("[[rule]]\n[rule.match]\nuser='x'\n[defaults]\nmemory={}")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := Parse("f.toml", strings.NewReader(text))
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
