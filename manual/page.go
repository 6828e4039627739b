package manual

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section is a part of the page of the topmost command that the commands do not say themselves.
type Section struct {
	Title string
	Items []Item
}

// Item is a word and what it means.
type Item struct{ Word, Meaning string }

// Document is a page on a file that is made of a document, so that what it says is written once.
type Document struct {
	Name  string // of the page, as gpuarb.toml
	Short string // the line of its section NAME
	Path  string // of the document, in the Markdown that docs/ uses: headings, paragraphs, tables, lists, blocks of code
	See   []string
}

// Book is the manual of one binary.
type Book struct {
	Root     *cobra.Command
	Chapter  int       // 1 for users' commands, 8 for daemons
	Date     string    // that stands at the foot of each page, as 2026-11-25
	Sections []Section // of Root's page
	See      []string  // further pages that Root's page names, as gpuarbd(8)

	Documents []Document // further pages
}

// pages are the commands that have a page of their own.
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

// name is what a command's page is called: gpuarb-queue-cancel.
func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// Page is the manual page of a command, in the man macros of roff.
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

// title writes the macro that each page begins with.
func (p *page) title(name string, chapter int, b Book) {
	fmt.Fprintf(p, ".TH %s %d %s \"%s\"\n", plain(strings.ToUpper(name)), chapter, b.Date, plain(b.Root.Name()+" "+b.Root.Version))
}

// macro writes a line that is a macro, with a title behind it.
func (p *page) macro(macro string, title ...string) {
	p.WriteString(strings.TrimSpace("."+macro+" "+strings.Join(title, " ")) + "\n")
}

// line writes a line of text that is in roff already. Neither a dot nor a quote at its beginning makes it a macro.
func (p *page) line(text string) {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	p.WriteString(text + "\n")
}

// words writes text as line does, in lines of the length that manual pages' sources have; roff fills them again.
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

// text writes paragraphs. Lines that are indented stay as they are.
func (p *page) text(text string) {
	fresh, as := true, false // the macro before has begun a paragraph; lines are kept as they are
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

// item writes a word in bold and, indented below it, what it means.
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

// option is how a flag is written: -h, --human; --memory VALUE; --wait[=VALUE].
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

// see names the pages around this one: the command above it, its neighbours, or what the book names.
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

// others names pages, as gpuarbd(8).
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

// roff is what stands for characters that mean something to roff. A hyphen of a flag has to be found and copied as
// one, and characters beyond ASCII are written so that any locale's roff takes them.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "…", "...", "→", `\(->`, "−", `\-`, "×", `\(mu`, "µ", `\(mc`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`)

func plain(text string) string { return roff.Replace(text) }

func bold(text string) string { return `\fB` + plain(text) + `\fR` }

// quoted is a command in backquotes, or a flag.
var quoted = regexp.MustCompile("`[^`]+`|(?:^|[ (])--[a-z-]+")

// marked is plain text with commands and flags in bold.
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
