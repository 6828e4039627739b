package manual

// This file writes the manual page of a command. markdown.go writes pages on files, and write.go
// puts all into a folder.

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section is a section of the page of the top command that is not made from the commands.
type Section struct {
	Title string
	Items []Item
}

// Item is a word and its meaning.
type Item struct{ Word, Meaning string }

// Document is a manual page on a file, such as gpuarb.toml. It is made from a Markdown document, so
// that the text exists only once.
type Document struct {
	Name  string // name of the page, such as gpuarb.toml
	Short string // text of its section NAME
	Path  string // path of the Markdown document
	See   []string
}

// Book is the manual of one binary.
type Book struct {
	Root     *cobra.Command
	Chapter  int       // 1 for commands of users, 8 for daemons
	Date     string    // date at the foot of each page, such as 2026-11-25
	Sections []Section // further sections of Root's page
	See      []string  // further pages that Root's page refers to, such as gpuarbd(8)

	Documents []Document // further pages
}

// pages returns the commands that have a page of their own.
func (b Book) pages() []*cobra.Command {
	all := []*cobra.Command{b.Root}
	for i := 0; i < len(all); i++ {
		for _, c := range all[i].Commands() {
			if c.IsAvailableCommand() && !(c.HasParent() && c.Parent().Name() == "completion") {
				all = append(all, c)
			}
		}
	}
	return all
}

// name returns the name of a command's page, such as gpuarb-queue-cancel.
func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// Page returns the manual page of a command, in the man macros of roff.
func (b Book) Page(c *cobra.Command) string {
	var p page
	p.title(name(c), b.Chapter, b)
	p.macro("SH", "NAME")
	p.words(plain(name(c)) + ` \- ` + plain(c.Short))
	p.macro("SH", "SYNOPSIS")
	usage := strings.TrimPrefix(c.UseLine(), c.CommandPath())
	if c == b.Root && c.HasAvailableSubCommands() {
		usage = " COMMAND" + usage
	}
	p.words(bold(c.CommandPath()) + plain(usage))
	p.macro("SH", "DESCRIPTION")
	if c.Long == "" {
		p.text(strings.ToUpper(c.Short[:1]) + c.Short[1:] + ".")
	}
	p.text(c.Long)
	p.commands(c, b.Chapter)
	p.options("OPTIONS", c.NonInheritedFlags())
	p.options("OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		p.macro("SH", "EXAMPLES")
		p.text(c.Example)
	}
	if c == b.Root {
		p.sections(b.Sections)
	}
	p.see(b, c)
	return p.String()
}

// page is a page that is being written.
type page struct{ strings.Builder }

// title writes the macro that begins each page.
func (p *page) title(name string, chapter int, b Book) {
	fmt.Fprintf(p, ".TH %s %d %s \"%s\"\n", plain(strings.ToUpper(name)), chapter, b.Date, plain(b.Root.Name()+" "+b.Root.Version))
}

// macro writes a macro, with its title.
func (p *page) macro(macro string, title ...string) {
	p.WriteString(strings.TrimSpace("."+macro+" "+strings.Join(title, " ")) + "\n")
}

// line writes a line of roff text. A dot or a quote at its beginning is escaped, because it would
// make the line a macro.
func (p *page) line(text string) {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	p.WriteString(text + "\n")
}

// words writes text in lines of the usual length of manual sources; roff fills the lines again.
func (p *page) words(text string) {
	const most = 80
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > most {
			p.line(line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	p.line(line)
}

// text writes paragraphs. Indented lines keep their line breaks.
func (p *page) text(text string) {
	fresh, as := true, false // fresh: a macro has just begun a paragraph; as: lines keep their line breaks
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		verbatim := strings.HasPrefix(line, "  ")
		switch {
		case verbatim && !as:
			if !fresh {
				p.macro("PP")
			}
			p.macro("nf")
		case !verbatim && as:
			p.macro("fi")
			if line != "" {
				p.macro("PP")
			}
		}
		switch {
		case line != "":
			fresh = false
			if verbatim {
				p.line(marked(strings.TrimPrefix(line, "  ")))
			} else {
				p.words(marked(line))
			}
		case !fresh:
			fresh = true
			p.macro("PP")
		}
		as = verbatim
	}
	if as {
		p.macro("fi")
	}
}

// item writes a word in bold, and its meaning indented below.
func (p *page) item(word, meaning string) {
	p.macro("TP")
	p.line(word)
	p.words(marked(meaning))
}

func (p *page) commands(c *cobra.Command, chapter int) {
	if !c.HasAvailableSubCommands() {
		return
	}
	p.macro("SH", "COMMANDS")
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		word := bold(sub.CommandPath())
		if c.Name() != "completion" {
			word = bold(name(sub)) + fmt.Sprintf("(%d)", chapter)
		}
		p.item(word, sub.Short)
	}
}

func (p *page) options(title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.macro("SH", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		if usage = strings.ToUpper(usage[:1]) + usage[1:]; f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		p.item(option(f), usage+".")
	})
}

// option returns how a flag is written: -h, --human; --memory VALUE; --wait[=VALUE].
func option(f *pflag.Flag) string {
	word, value := bold("--"+f.Name), `\fIVALUE\fR`
	if f.Shorthand != "" {
		word = bold("-"+f.Shorthand) + ", " + word
	}
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return word
	case kind != "string" && f.NoOptDefVal == "":
		value = `\fIN\fR`
	}
	if f.NoOptDefVal != "" {
		return word + "[=" + value + "]"
	}
	return word + " " + value
}

func (p *page) sections(all []Section) {
	for _, s := range all {
		p.macro("SH", s.Title)
		for _, i := range s.Items {
			p.item(bold(i.Word), i.Meaning)
		}
	}
}

// see lists related pages: the parent command and its other commands, or the pages that the book
// names.
func (p *page) see(b Book, c *cobra.Command) {
	var others []string
	if c == b.Root {
		others = b.See
	} else {
		others = append(others, fmt.Sprintf("%s(%d)", name(c.Parent()), b.Chapter))
		for _, sub := range c.Parent().Commands() {
			if sub != c && sub.IsAvailableCommand() && c.Parent() != b.Root {
				others = append(others, fmt.Sprintf("%s(%d)", name(sub), b.Chapter))
			}
		}
	}
	p.others(others)
}

// others writes the section SEE ALSO with pages such as gpuarbd(8).
func (p *page) others(others []string) {
	if len(others) == 0 {
		return
	}
	p.macro("SH", "SEE ALSO")
	for i, other := range others {
		word, chapter, _ := strings.Cut(other, "(")
		end := ","
		if i == len(others)-1 {
			end = ""
		}
		p.line(bold(word) + "(" + chapter + end)
	}
}

// roff escapes characters that have a meaning in roff. The hyphen of a flag must stay a hyphen, so
// that users can search and copy it. Characters beyond ASCII are escaped so that roff accepts them
// in every locale.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "→", `\(->`, "−", `\-`, "×", `\(mu`, "µ", `\(mc`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

func plain(text string) string { return roff.Replace(text) }

func bold(text string) string { return `\fB` + plain(text) + `\fR` }

// quoted matches a command in backquotes, or a flag.
var quoted = regexp.MustCompile("`[^`]+`|(?:^|[ (])--[a-z-]+")

// marked returns escaped text with commands and flags in bold.
func marked(text string) string {
	var b strings.Builder
	end := 0
	for _, at := range quoted.FindAllStringIndex(text, -1) {
		b.WriteString(plain(text[end:at[0]]))
		found := text[at[0]:at[1]]
		if dashes := strings.Index(found, "--"); found[0] != '`' && dashes > 0 {
			b.WriteString(found[:dashes])
			found = found[dashes:]
		}
		b.WriteString(bold(strings.Trim(found, "`")))
		end = at[1]
	}
	b.WriteString(plain(text[end:]))
	return b.String()
}
