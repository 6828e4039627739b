package main

import (
	"regexp"
	"strings"
	"testing"
)

// The summary of a test run shows each failure and skip with its output, and a run succeeds only if
// something passed and nothing failed or was skipped. The input is written by hand in the form of
// go test -json.

func TestSummary(t *testing.T) {
	const (
		passA    = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		failB    = `{"Action":"output","Package":"p","Test":"TestB","Output":"want 1\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestB"}` + "\n"
		skipC    = `{"Action":"output","Package":"p","Test":"TestC","Output":"no fuse\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestC"}` + "\n"
		passPkg  = `{"Action":"output","Package":"p","Output":"PASS\n"}` + "\n" + `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}` + "\n" + `{"Action":"pass","Package":"p"}` + "\n"
		failPkg  = `{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"
		skipPkg  = `{"Action":"skip","Package":"q"}` + "\n"
		noBuild  = `{"Action":"build-output","ImportPath":"p","Output":"p.go:1: undefined: x\n"}` + "\n" + failPkg
		panicked = `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: out of range\n"}` + "\n" + failPkg
	)
	tests := []struct {
		name      string
		in        string
		want      string // last line
		says      string // text that must be shown before it
		succeeded bool
	}{
		{"all pass", passA + passPkg, "1 passed, 0 failed, 0 skipped", "ok  \tp", true},
		{"a failure is shown", passA + failB + failPkg, "1 passed, 1 failed, 0 skipped", "want 1", false},
		{"a skip fails the run", passA + skipC + passPkg, "1 passed, 0 failed, 1 skipped", "no fuse", false},
		{"a package that does not build", passA + noBuild, "1 passed, 1 failed, 0 skipped", "undefined: x", false},
		{"a panic", passA + panicked, "1 passed, 1 failed, 0 skipped", "out of range", false},
		{"a package without tests", passA + passPkg + skipPkg, "1 passed, 0 failed, 0 skipped", "", true},
		{"nothing ran", skipPkg, "0 passed, 0 failed, 0 skipped", "", false},
		{"a line that is no event", "go: warning\n" + passA, "1 passed, 0 failed, 0 skipped", "go: warning", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(&out)
			if err := s.read(strings.NewReader(test.in)); err != nil {
				t.Fatal(err)
			}
			if err := s.finish(); err != nil {
				t.Fatal(err)
			}
			got := out.String()
			if !strings.HasSuffix(got, test.want+"\n") {
				t.Errorf("the output ends in %q, want %q", got, test.want)
			}
			if !strings.Contains(got, test.says) {
				t.Errorf("the output %q does not show %q", got, test.says)
			}
			if s.succeeded() != test.succeeded {
				t.Errorf("good() = %v, want %v", s.succeeded(), test.succeeded)
			}
		})
	}
}

func TestShow(t *testing.T) {
	const in = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: measured: 7 KiB\n"}` + "\n" +
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:2: nothing of note\n"}` + "\n" +
		`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
	for _, show := range []*regexp.Regexp{nil, regexp.MustCompile("measured:")} {
		var out strings.Builder
		s := newSummary(&out)
		s.show = show
		if err := s.read(strings.NewReader(in)); err != nil {
			t.Fatal(err)
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "7 KiB") != (show != nil) || strings.Contains(got, "nothing of note") {
			t.Errorf("with -show %v: %q", show, got)
		}
	}
}

func TestTimes(t *testing.T) {
	const in = `{"Action":"pass","Package":"p","Test":"TestA/part","Elapsed":1}` + "\n" +
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":61.25}` + "\n"
	var out strings.Builder
	s := newSummary(&out)
	s.times = true
	if err := s.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "pass p TestA 61.2s\n"; got != want {
		t.Errorf("with -times: %q, want %q", got, want)
	}
}
