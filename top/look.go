package top

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// The attributes of text: parameters of the terminal's SGR sequence. Only the sixteen colours of the
// terminal's own palette are used, so that they suit light and dark ones; the terminal library
// leaves colours out where NO_COLOR is set.
const (
	bold      = "1"
	faint     = "2"
	inverse   = "7"
	alarm     = "1;31"
	attention = "33"
	used      = "32"
	kept      = "36"
	overhead  = "33"
	unmanaged = "35"
)

// paint gives a text an attribute.
func paint(attribute, text string) string {
	if attribute == "" || text == "" {
		return text
	}
	return "\x1b[" + attribute + "m" + text + "\x1b[m"
}

// glyphs are the characters that figures are drawn with. Each part of a bar has one of its own, so
// that colours are not needed to tell them apart.
type glyphs struct {
	used, kept, overhead, unmanaged, free string
	levels                                []string // of a column of the graph, empty first
	branch, corner                        string   // of the tree
	up, down                              string   // the direction of the sort
	enter                                 string   // the key of the details
	scroll                                string   // the keys that scroll a page
}

var (
	unicodeGlyphs = glyphs{"█", "▒", "▓", "╱", "·", []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "├─ ", "└─ ", "▴", "▾", "⏎", "↑↓"}
	asciiGlyphs   = glyphs{"#", "=", "+", "/", ".", []string{" ", ".", ":", "|"}, "|- ", "`- ", "^", "v", "d", "arrows"}
)

// fit cuts or fills a text to as many cells as there are.
func fit(text string, cells int) string {
	width := ansi.StringWidth(text)
	if width > cells {
		return ansi.Truncate(text, cells, "…")
	}
	return text + strings.Repeat(" ", cells-width)
}

// alignRight fits a text to the right end of its cells.
func alignRight(text string, cells int) string {
	if width := ansi.StringWidth(text); width < cells {
		return strings.Repeat(" ", cells-width) + text
	}
	return fit(text, cells)
}

// wrap breaks a text into lines of at most so many cells, at spaces where there are some; what
// follows the first line is indented by two more than that.
func wrap(text string, cells int) []string {
	if ansi.StringWidth(text) <= cells {
		return []string{text}
	}
	words := strings.TrimLeft(text, " ")
	indent := min(len(text)-len(words), max(0, cells-20))
	var lines []string
	line := strings.Repeat(" ", indent)
	empty := true
	for _, word := range strings.Split(words, " ") {
		if !empty && ansi.StringWidth(line)+1+ansi.StringWidth(word) <= cells {
			line += " " + word
			continue
		}
		if !empty {
			lines = append(lines, line)
			line = strings.Repeat(" ", min(indent+2, max(0, cells-20)))
		}
		line, empty = line+word, false
		for ansi.StringWidth(line) > cells && cells > 0 {
			lines = append(lines, ansi.Cut(line, 0, cells))
			line = ansi.Cut(line, cells, ansi.StringWidth(line))
		}
	}
	return append(lines, line)
}
