package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// This file compares the pages with the command tree: commands with their flags, exit codes, and
// names of manual pages.

var (
	inlineCode = regexp.MustCompile("`([^`\n]+)`")
	codeBlock  = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	invocation = regexp.MustCompile(`(?:^|[^\w/.-])gpuarb ([^|;&)#]*)`)
	flagName   = regexp.MustCompile(`^(--[a-z][a-z-]*|-[a-zA-Z])(?:=|$)`)
	codeRow    = regexp.MustCompile(`(?m)^\| (\d+) \|`)
	manualPage = regexp.MustCompile(`\b(gpuarb[a-z.-]*)\((\d)\)|\bman (?:(\d) )?(gpuarb[a-z.-]*[a-z])`)
)

// markdownPages returns the text of the README and of all pages in docs/, by path. Pages about
// decisions are left out, because they also name removed things.
func markdownPages(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	read := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[path] = string(text)
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"} {
		read(filepath.Join("../..", name))
	}
	err := filepath.WalkDir("../../docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && filepath.Base(filepath.Dir(path)) != "decisions" {
			read(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// TestFlagsOfThePages checks that each command line in the pages has only flags that its command
// knows.
func TestFlagsOfThePages(t *testing.T) {
	root := (&app{}).rootCommand()
	seen := 0
	for page, text := range markdownPages(t) {
		var code []string
		for _, m := range codeBlock.FindAllStringSubmatch(text, -1) {
			code = append(code, strings.Split(m[1], "\n")...)
		}
		for _, m := range inlineCode.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			code = append(code, m[1])
		}
		for _, line := range code {
			for _, m := range invocation.FindAllStringSubmatch(line, -1) {
				seen++
				if flag := unknownFlag(root, strings.Fields(m[1])); flag != "" {
					t.Errorf("%s shows %q, and that command has no flag %s", page, line, flag)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d commands were found in the pages", seen)
	}
}

// unknownFlag returns the first flag of a command line that its command does not have. The words
// after `--`, or after --exec of a claim, belong to another program.
func unknownFlag(root *cobra.Command, words []string) string {
	command := root
	for len(words) > 0 {
		below, _, err := command.Find(words[:1])
		if err != nil || below == command {
			break
		}
		command, words = below, words[1:]
	}
	command.InitDefaultHelpFlag()
	for _, word := range words {
		m := flagName.FindStringSubmatch(word)
		switch {
		case word == "--":
			return ""
		case m == nil:
		case strings.HasPrefix(m[1], "--"):
			if name := m[1][2:]; command.Flags().Lookup(name) == nil && command.InheritedFlags().Lookup(name) == nil && name != "version" {
				return m[1]
			}
		case command.Flags().ShorthandLookup(m[1][1:]) == nil && command != root:
			return m[1]
		}
		if word == "--exec" && command.Name() == "claim" {
			return ""
		}
	}
	return ""
}

// TestUnknownFlagsAreFound checks unknownFlag itself: a flag of another command is found, and flags
// of the program that a command runs are not looked at.
func TestUnknownFlagsAreFound(t *testing.T) {
	root := (&app{}).rootCommand()
	for line, want := range map[string]string{
		"run --memory 1M -- ls --bytes": "", "run --bytes -- ls": "--bytes", "queue cancel --summary 1": "--summary", "ps -h": "", "events -x": "-x",
		"claim --exec ls --bytes": "", "--socket x ps": "",
	} {
		if got := unknownFlag(root, strings.Fields(line)); got != want {
			t.Errorf("gpuarb %s: %q, want %q", line, got, want)
		}
	}
}

// TestExitCodesInDocuments compares the tables of docs/reference/exit-codes.md with the manual
// pages. The codes themselves are tried in TestExitCodes.
func TestExitCodesInDocuments(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/exit-codes.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := make(map[string][]string) // codes below each heading
	for _, section := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		for _, m := range codeRow.FindAllStringSubmatch(body, -1) {
			codes[title] = append(codes[title], m[1])
		}
	}
	var manual []string
	for _, s := range ownSections() {
		if s.Title == "EXIT STATUS" {
			for _, item := range s.Items {
				manual = append(manual, item.Word)
			}
		}
	}
	if others := codes["The other commands"]; !slices.Equal(others, manual) || len(manual) == 0 {
		t.Errorf("the page has the codes %q, gpuarb(1) has %q", others, manual)
	}
	run, _, err := (&app{}).rootCommand().Find([]string{runName})
	if err != nil || len(codes["`gpuarb run`"]) == 0 {
		t.Fatalf("no command %s, or no codes of it: %v", runName, err)
	}
	for _, code := range codes["`gpuarb run`"] {
		if !regexp.MustCompile(`\b` + code + `\b`).MatchString(run.Long) {
			t.Errorf("gpuarb-run(1) does not say what %s means", code)
		}
	}
}

// TestManualPagesInDocuments checks that each manual page of gpuarb exists that a page in docs/, or
// another manual page, names.
func TestManualPagesInDocuments(t *testing.T) {
	written := map[string]bool{"gpuarbd(8)": true}
	for _, document := range documents("") {
		written[document.Name+"(5)"] = true
	}
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		written[strings.ReplaceAll(c.CommandPath(), " ", "-")+"(1)"] = true
		for _, below := range c.Commands() {
			add(below)
		}
	}
	add((&app{}).rootCommand())
	texts := markdownPages(t)
	for _, document := range documents("") {
		texts["see also of "+document.Name] = strings.Join(document.See, " ")
	}
	for page, text := range texts {
		for _, m := range manualPage.FindAllStringSubmatch(text, -1) {
			name := m[1] + "(" + m[2] + ")"
			if m[1] == "" {
				section := "(1)"
				if m[3] != "" {
					section = "(" + m[3] + ")"
				} else if m[4] == "gpuarbd" {
					section = "(8)"
				}
				name = m[4] + section
			}
			if !written[name] {
				t.Errorf("%s names %s; the manual pages are %q", page, name, slices.Sorted(maps.Keys(written)))
			}
		}
	}
}
