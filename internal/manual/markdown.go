package manual

// This file turns a Markdown document into a manual page on a file. page.go writes the roff.

import (
	"fmt"
	"regexp"
	"strings"
)

// filesChapter is the chapter of the manual for files.
const filesChapter = 5

// document returns the manual page of a document with this text. The first row of a table names its
// columns. Each further row becomes an item: its first cell is the word, and its last cell the
// meaning. The cells between them are written with the names of their columns.
func (b Book) document(d Document, text string) string {
	var p page
	p.title(d.Name, filesChapter, b)
	p.macro("SH", "NAME")
	p.words(plain(d.Name) + ` \- ` + plain(d.Short))
	m := markdown{page: &p}
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		m.line(line)
	}
	m.end()
	p.others(d.See)
	return p.String()
}

// markdown turns lines of Markdown into roff. It collects at most one element at a time.
type markdown struct {
	page     *page
	words    []string // words of the paragraph or list item that is being read
	item     bool     // words are a list item
	columns  []string // names of the columns of the table that is being read
	fenced   bool     // between two lines of ```
	verbatim bool     // inside indented code
	fresh    bool     // a heading was just written, so a paragraph needs no macro
}

var (
	rule  = regexp.MustCompile(`^\|( *-+ *\|)+$`)
	link  = regexp.MustCompile(`\[((?:[^\[\]]|\[[^\]]*\])+)\]\([^)]*\)`)
	stars = regexp.MustCompile(`\*\*?([^*\s][^*]*)\*\*?`)
)

func (m *markdown) line(line string) {
	switch {
	case strings.HasPrefix(line, "```"):
		m.end()
		if m.fenced = !m.fenced; m.fenced {
			m.block()
		} else {
			m.page.macro("fi")
		}
	case m.fenced:
		m.page.line(plain(line))
	case strings.HasPrefix(line, "    ") && !m.item:
		if !m.verbatim {
			m.end()
			m.block()
			m.verbatim = true
		}
		m.page.line(plain(line[4:]))
	case strings.HasPrefix(line, "#"):
		m.end()
		m.heading(line)
	case strings.HasPrefix(line, "|"):
		m.row(line)
	case line == "":
		m.end()
	case strings.HasPrefix(line, "- "):
		m.end()
		m.item = true
		m.words = append(m.words, line[2:])
	default:
		if m.columns != nil || m.verbatim {
			m.end()
		}
		m.words = append(m.words, strings.TrimSpace(line))
	}
}

// end writes what was collected.
func (m *markdown) end() {
	if m.verbatim {
		m.page.macro("fi")
	}
	if len(m.words) > 0 {
		if m.item {
			m.page.macro("IP", `\(bu`, "2")
		} else if !m.fresh {
			m.page.macro("PP")
		}
		m.page.words(inline(strings.Join(m.words, " ")))
		m.fresh = false
	}
	m.words, m.item, m.columns, m.verbatim = nil, false, nil, false
}

// block begins lines that keep their line breaks.
func (m *markdown) block() {
	if !m.fresh {
		m.page.macro("PP")
	}
	m.fresh = false
	m.page.macro("nf")
}

// heading writes a title in capitals, except for code. The title of the document becomes
// "DESCRIPTION", because the page has a title of its own.
func (m *markdown) heading(line string) {
	parts := strings.Split(strings.TrimLeft(line, "# "), "`")
	if strings.HasPrefix(line, "# ") {
		parts = []string{"Description"}
	}
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.ToUpper(parts[i])
	}
	m.page.macro("SH", `"`+plain(strings.Join(parts, ""))+`"`)
	m.fresh = true
}

func (m *markdown) row(line string) {
	cells := strings.Split(strings.Trim(line, "|"), " | ")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.Trim(cells[i], "|"))
	}
	switch {
	case m.columns == nil:
		m.end()
		m.columns = cells
	case rule.MatchString(strings.ReplaceAll(line, " ", "")):
	default:
		m.page.macro("TP")
		m.page.line(inline(cells[0]))
		m.meaning(cells)
		m.fresh = false
	}
}

// meaning writes the other cells of a row: a line for the cells in between, then the last cell.
func (m *markdown) meaning(cells []string) {
	last := len(cells) - 1
	var named []string
	for i := 1; i < last; i++ {
		if cells[i] != "" {
			named = append(named, strings.ToUpper(m.columns[i][:1])+m.columns[i][1:]+": "+cells[i]+".")
		}
	}
	if len(named) > 0 {
		m.page.words(inline(strings.Join(named, " ")))
	}
	if len(named) > 0 && cells[last] != "" {
		m.page.macro("br")
	}
	if len(named) == 0 || cells[last] != "" {
		m.page.words(inline(cells[last]))
	}
}

// inline returns a line of Markdown as roff: code becomes bold, emphasis italic, and a link its
// text.
func inline(text string) string {
	text = link.ReplaceAllString(text, "$1")
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			b.WriteString(bold(part))
			continue
		}
		end := 0
		for _, at := range stars.FindAllStringSubmatchIndex(part, -1) {
			fmt.Fprintf(&b, `%s\fI%s\fR`, plain(part[end:at[0]]), plain(part[at[2]:at[3]]))
			end = at[1]
		}
		b.WriteString(plain(part[end:]))
	}
	return b.String()
}
