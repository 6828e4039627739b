package main

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// style is how a text is painted.
type style struct {
	bold, faint, inverse bool
	colour               byte // '1' to '6' of the terminal's palette; 0: the foreground
}

// with is the style after an SGR sequence with such parameters.
func (s style) with(parameters string) style {
	for _, p := range strings.Split(parameters, ";") {
		switch {
		case p == "" || p == "0":
			s = style{}
		case p == "1":
			s.bold = true
		case p == "2":
			s.faint = true
		case p == "7":
			s.inverse = true
		case len(p) == 2 && p[0] == '3':
			s.colour = p[1]
		}
	}
	return s
}

// run is text of one style, in a row of cells.
type run struct {
	text  string
	at    int // its first cell
	cells int
	style style
}

// runs are those of a line. A character that is drawn as a shape is a run of its own kind.
func runs(line string) (all []run) {
	var now style
	at := 0
	for line != "" {
		if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
			parameters, after, _ := strings.Cut(rest, "m")
			now, line = now.with(parameters), after
			continue
		}
		text := line[:len(line)-len(strings.TrimLeftFunc(line, func(r rune) bool { return r != '\x1b' }))]
		line = line[len(text):]
		for _, r := range text {
			last := len(all) - 1
			if cells := ansi.StringWidth(string(r)); last >= 0 && all[last].style == now && alike(all[last].text, r) {
				all[last].text += string(r)
				all[last].cells += cells
			} else {
				all = append(all, run{string(r), at, cells, now})
			}
			at += ansi.StringWidth(string(r))
		}
	}
	return all
}

// alike reports whether a character continues a run: a shape continues the same shape alone.
func alike(text string, r rune) bool {
	_, before := shapes[[]rune(text)[0]]
	_, is := shapes[r]
	return before == is && (!is || strings.HasPrefix(text, string(r)))
}
