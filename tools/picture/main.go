// Command picture draws a screen of a terminal as SVG. It reads text with SGR sequences from stdin;
// ␛ may stand for the escape character, as in the golden files of top. `make pictures` makes the
// pictures in docs/pictures with it.
package main

// This file connects stdin and stdout with draw, in svg.go. The Makefile calls the command (target
// pictures).

import (
	"fmt"
	"io"
	"os"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		_, err = io.WriteString(os.Stdout, draw(string(text)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}
