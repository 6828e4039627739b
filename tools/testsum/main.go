package main

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
	if !sum.good() {
		os.Exit(1)
	}
}

// event is one line of go test -json (cmd/test2json documents it).
type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that does not build
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// testID names one test of one package; the test is empty for the package itself.
type testID struct{ pkg, test string }

// summary follows the events of one run. It is not safe for concurrent use.
type summary struct {
	out     *bufio.Writer
	passed  int
	failed  int
	skipped int
	// output holds what a test has printed, until it is known how the test ended.
	output map[testID][]string
	// broken counts the failures of each package, to tell a package that failed
	// outside its tests (it did not build, or its main gave up).
	broken map[string]int
	bad    []string
	show   *regexp.Regexp // lines that are wanted of a test that passes; nil: none
	times  bool           // say of each test, its parts excepted, how long it took
}

func newSummary(out io.Writer) *summary {
	return &summary{
		out:    bufio.NewWriter(out),
		output: make(map[testID][]string),
		broken: make(map[string]int),
	}
}

// good says whether the run proves anything: something passed, all of it.
func (s *summary) good() bool { return s.passed > 0 && s.failed == 0 && s.skipped == 0 }

// read takes events until the end of r. A line that is no event is shown as it is.
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
				_ = s.out.Flush() // each may take minutes; finish reports the error
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
	s.bad = append(s.bad, fmt.Sprintf("%s %s %s", action, id.pkg, id.test))
	s.print(s.output[id]...)
}

// endPackage prints the package's closing line, or all that it said when it
// failed. A package without tests has nothing to say.
func (s *summary) endPackage(id testID, action string) {
	lines := s.output[id]
	switch action {
	case "pass":
		if len(lines) > 0 {
			s.print(lines[len(lines)-1])
		}
	case "fail":
		// A panic leaves tests behind that never ended; what they printed is wanted.
		for _, open := range s.open(id.pkg) {
			s.print(s.output[open]...)
			delete(s.output, open)
		}
		s.print(lines...)
		if s.broken[id.pkg] == 0 {
			s.failed++
			s.bad = append(s.bad, "fail "+id.pkg)
		}
	}
	_ = s.out.Flush() // a long run should be seen to move; finish reports the error
}

// open lists the tests of a package that have begun and not ended, in order.
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
	for _, l := range lines {
		_, _ = s.out.WriteString(l) // the writer keeps its first error for finish
	}
}

// finish names what went wrong and writes the closing line.
func (s *summary) finish() error {
	if len(s.bad) > 0 {
		s.print("\n", strings.Join(s.bad, "\n"), "\n")
	}
	s.print(fmt.Sprintf("%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped))
	return s.out.Flush()
}
