package top

// This file has colours, characters, and functions that fit text into cells. All files that draw
// use it.

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// The attributes of text, as parameters of the terminal's SGR sequence. Only the sixteen colours of
// the terminal's palette are used, so that they suit light and dark terminals. The terminal library
// leaves out colours if NO_COLOR is set.
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

// glyphs are the characters that draw figures. Each part of a bar has its own character, so that
// the parts differ without colours too.
type glyphs struct {
	used, kept, overhead, unmanaged, free string
	levels                                []string // column of the graph, from empty to full
	branch, corner                        string   // in the tree
	up, down                              string   // direction of the sort
	enter                                 string   // key of the details
	scroll                                string   // keys that scroll a page
}

var (
	unicodeGlyphs = glyphs{"█", "▒", "▓", "╱", "·", []string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "├─ ", "└─ ", "▴", "▾", "⏎", "↑↓"}
	asciiGlyphs   = glyphs{"#", "=", "+", "/", ".", []string{" ", ".", ":", "|"}, "|- ", "`- ", "^", "v", "d", "arrows"}
)

// fit cuts or pads a text to a number of cells.
func fit(text string, cells int) string {
	width := ansi.StringWidth(text)
	if width > cells {
		return ansi.Truncate(text, cells, "…")
	}
	return text + strings.Repeat(" ", cells-width)
}

// alignRight pads a text on the left.
func alignRight(text string, cells int) string {
	if width := ansi.StringWidth(text); width < cells {
		return strings.Repeat(" ", cells-width) + text
	}
	return fit(text, cells)
}

// wrap breaks a text into lines of at most a number of cells, at spaces if possible. Lines after
// the first are indented by two more cells.
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
