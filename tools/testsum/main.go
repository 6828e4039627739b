package main

// This file is the whole command. doc.go describes its output.

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("testsum: ")
	passed := flag.Int("passed", 0, "`count` of steps that passed before")
	failed := flag.Int("failed", 0, "`count` of steps that failed before")
	show := flag.String("show", "", "`pattern` of lines to show of tests that pass, too")
	times := flag.Bool("times", false, "show how long each test took")
	flag.Parse()
	sum := newSummary(os.Stdout)
	if *show != "" {
		sum.show = regexp.MustCompile(*show)
	}
	sum.passed, sum.failed, sum.times = *passed, *failed, *times
	if err := errors.Join(sum.read(os.Stdin), sum.finish()); err != nil {
		log.Fatal(err)
	}
	if !sum.succeeded() {
		os.Exit(1)
	}
}

// event is a line of go test -json (cmd/test2json documents it).
type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that does not build
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// testID identifies a test of a package; test is empty for the package itself.
type testID struct{ pkg, test string }

// summary follows the events of one run. It is not safe for concurrent use.
type summary struct {
	out     *bufio.Writer
	passed  int
	failed  int
	skipped int
	// output holds the output of each test until the test ends.
	output map[testID][]string
	// broken counts the failures of each package. A package may also fail outside its tests: it
	// does not build, or its main fails.
	broken   map[string]int
	failures []string
	show     *regexp.Regexp // lines of passing tests that are shown; nil: none
	times    bool           // show how long each test took, without subtests
}

func newSummary(out io.Writer) *summary {
	return &summary{
		out:    bufio.NewWriter(out),
		output: make(map[testID][]string),
		broken: make(map[string]int),
	}
}

// succeeded reports whether something passed, and nothing failed or was skipped.
func (s *summary) succeeded() bool { return s.passed > 0 && s.failed == 0 && s.skipped == 0 }

// read reads events until the end of r. A line that is not an event is printed as it is.
func (s *summary) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			return s.out.Flush()
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) line(line string) {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
		s.print(line)
		return
	}
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		s.print(e.Output)
	case "output":
		s.output[id] = append(s.output[id], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(id, e.Action)
		} else {
			s.endTest(id, e.Action)
			if s.times && !strings.Contains(e.Test, "/") {
				s.print(fmt.Sprintf("%-4s %s %s %.1fs\n", e.Action, e.Package, e.Test, e.Elapsed))
				_ = s.out.Flush() // tests may take minutes, so show the line now; finish reports the error
			}
		}
		delete(s.output, id)
	}
}

func (s *summary) endTest(id testID, action string) {
	switch action {
	case "pass":
		s.passed++
		for _, l := range s.output[id] {
			if s.show != nil && s.show.MatchString(l) {
				s.print(l)
			}
		}
		return
	case "fail":
		s.failed++
		s.broken[id.pkg]++
	case "skip":
		s.skipped++
	}
	s.failures = append(s.failures, fmt.Sprintf("%s %s %s", action, id.pkg, id.test))
	s.print(s.output[id]...)
}

// endPackage prints the last line of a package, or its complete output if it failed. A package
// without tests prints nothing.
func (s *summary) endPackage(id testID, action string) {
	lines := s.output[id]
	switch action {
	case "pass":
		if len(lines) > 0 {
			s.print(lines[len(lines)-1])
		}
	case "fail":
		// After a panic there are tests that never ended; print their output too.
		for _, open := range s.open(id.pkg) {
			s.print(s.output[open]...)
			delete(s.output, open)
		}
		s.print(lines...)
		if s.broken[id.pkg] == 0 {
			s.failed++
			s.failures = append(s.failures, "fail "+id.pkg)
		}
	}
	_ = s.out.Flush() // so that progress is visible; finish reports the error
}

// open returns the tests of a package that have begun but not ended, sorted.
func (s *summary) open(pkg string) []testID {
	var ids []testID
	for id := range s.output {
		if id.pkg == pkg && id.test != "" {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b testID) int { return strings.Compare(a.test, b.test) })
	return ids
}

func (s *summary) print(lines ...string) {
	for _, l := range lines { // the writer keeps its first error for finish
		_, _ = s.out.WriteString(l) // the writer keeps its first error for finish
	}
}

// finish lists the failures and writes the last line.
func (s *summary) finish() error {
	if len(s.failures) > 0 {
		s.print("\n", strings.Join(s.failures, "\n"), "\n")
	}
	s.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped))
	return s.out.Flush()
}
