package main

// This file draws the runs of a screen as SVG. cells.go splits lines into runs.

import (
	"fmt"
	"html"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// The size of a cell, and of the space around the screen, in pixels.
const (
	cellWidth, cellHeight = 8, 18
	baseline              = 13 // of a text, below the top of its cell
	margin                = 12
)

const foreground, background = "#d7dae0", "#1e2127"

// palette has the colours of the terminal, by the digit of their SGR parameter.
var palette = map[byte]string{'1': "#ef6b73", '2': "#8cc265", '3': "#e0b45f", '4': "#61a8e8", '5': "#c67bdb", '6': "#4fb8c2"}

// shape is a character that is drawn as a rectangle, because fonts leave gaps between such
// characters.
type shape struct {
	eighths int // part of the cell that is filled, from the bottom
	opacity float64
}

var shapes = map[rune]shape{
	'▁': {1, 1}, '▂': {2, 1}, '▃': {3, 1}, '▄': {4, 1}, '▅': {5, 1}, '▆': {6, 1}, '▇': {7, 1}, '█': {8, 1}, '▒': {8, .5}, '▓': {8, .75},
}

// draw returns a screen as SVG.
func draw(screen string) string {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(screen, "␛", "\x1b"), "\n"), "\n")
	var b strings.Builder
	cells := 0
	for _, line := range lines {
		cells = max(cells, ansi.StringWidth(line))
	}
	width, height := cells*cellWidth+2*margin, len(lines)*cellHeight+2*margin
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\">\n",
		width, height, width, height)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\"/>\n", width, height, background)
	for i, line := range lines {
		for _, r := range runs(line) {
			drawRun(&b, r, margin+i*cellHeight)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawRun draws a run in the line whose top is at y.
func drawRun(b *strings.Builder, r run, y int) {
	x, width := margin+r.at*cellWidth, r.cells*cellWidth
	colour := foreground
	if named, ok := palette[r.style.colour]; ok {
		colour = named
	}
	if r.style.inverse {
		rectangle(b, x, y, width, cellHeight, colour, 1)
		colour = background
	}
	opacity := 1.0
	if r.style.faint {
		opacity = .55
	}
	if s, ok := shapes[[]rune(r.text)[0]]; ok {
		height := cellHeight * s.eighths / 8
		rectangle(b, x, y+cellHeight-height, width, height, colour, opacity*s.opacity)
		return
	}
	if strings.TrimSpace(r.text) == "" {
		return
	}
	weight := ""
	if r.style.bold {
		weight = " font-weight=\"bold\""
	}
	fmt.Fprintf(b, "<text xml:space=\"preserve\" x=\"%d\" y=\"%d\" textLength=\"%d\" lengthAdjust=\"spacingAndGlyphs\" fill=\"%s\" fill-opacity=\"%.3g\"%s>%s</text>\n",
		x, y+baseline, width, colour, opacity, weight, html.EscapeString(r.text))
}

func rectangle(b *strings.Builder, x, y, width, height int, colour string, opacity float64) {
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" fill-opacity=\"%.3g\"/>\n", x, y, width, height, colour, opacity)
}
