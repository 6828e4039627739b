package manual

import (
	"fmt"
	"regexp"
	"strings"
)

// onFiles is the chapter of pages on files.
const onFiles = 5

// document is the manual page of a document with this text. The first row of a table names its columns; each further row becomes an item: its
// first cell is the word, the columns in between are named, and the last one is the meaning.
func (b Book) document(d Document, text string) string {
	var p page
	p.title(d.Name, onFiles, b)
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

// markdown turns lines of Markdown into roff. Exactly one of what it collects is not empty at a time.
type markdown struct {
	page    *page
	words   []string // of the paragraph or list item that is read
	item    bool     // it is a list item
	columns []string // names of the table's columns, while it is read
	fenced  bool     // between two lines of ```
	verbat  bool     // indented code
	fresh   bool     // a heading was just written: a paragraph needs no macro
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
		if !m.verbat {
			m.end()
			m.block()
			m.verbat = true
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
		if m.columns != nil || m.verbat {
			m.end()
		}
		m.words = append(m.words, strings.TrimSpace(line))
	}
}

// end writes what was collected.
func (m *markdown) end() {
	if m.verbat {
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
	m.words, m.item, m.columns, m.verbat = nil, false, nil, false
}

// block begins lines that stay as they are.
func (m *markdown) block() {
	if !m.fresh {
		m.page.macro("PP")
	}
	m.fresh = false
	m.page.macro("nf")
}

// heading writes a title, in capitals but for code. That of the document is the page's own; its text becomes the description.
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

// meaning writes what a row says of its first cell: a line of the columns in between, and the last.
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

// inline is a line of Markdown in roff: code is bold, emphasis italic, and of a link there is the text.
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
