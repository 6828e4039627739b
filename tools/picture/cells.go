package main

// This file splits a line of a terminal into runs of equal style. svg.go draws them.

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// style is the appearance of a text.
type style struct {
	bold, faint, inverse bool
	colour               byte // '1' to '6' of the terminal's palette; 0: the foreground
}

// withSGR returns the style after an SGR sequence with these parameters.
func (s style) withSGR(parameters string) style {
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

// run is a text of one style in consecutive cells.
type run struct {
	text  string
	at    int // index of its first cell
	cells int
	style style
}

// runs returns the runs of a line. Characters that are drawn as a shape have runs of their own.
func runs(line string) (all []run) {
	var now style
	at := 0
	for line != "" {
		if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
			parameters, after, _ := strings.Cut(rest, "m")
			now, line = now.withSGR(parameters), after
			continue
		}
		text := line[:len(line)-len(strings.TrimLeftFunc(line, func(r rune) bool { return r != '\x1b' }))]
		line = line[len(text):]
		for _, r := range text {
			last := len(all) - 1
			if cells := ansi.StringWidth(string(r)); last >= 0 && all[last].style == now && continues(all[last].text, r) {
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

// continues reports whether a character belongs to the run of a text. A shape continues only a run
// of equal shapes, and a character of two cells only a run of such characters: a run is drawn
// as wide as its cells, and fonts have other widths for these characters.
func continues(text string, r rune) bool {
	first := []rune(text)[0]
	_, before := shapes[first]
	_, is := shapes[r]
	wide := ansi.StringWidth(string(r))
	return before == is && (!is || first == r) && (wide == 0 || wide == ansi.StringWidth(string(first)))
}
