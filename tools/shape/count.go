package main

// This file counts lines of code. main.go prints the sums.

import "unicode"

// linesOfCode returns the number of lines of Go or C that are neither blank nor comments. Both
// languages have equal comments. A back quote begins a text only in Go, and C does not use it.
func linesOfCode(text []byte) (lines int) {
	const (
		code         = 0
		lineComment  = '/'
		blockComment = '*'
	) // the state is one of these, or the quote that began a text
	state, holdsCode := byte(code), false
	for i := 0; i < len(text); i++ {
		c, next := text[i], byte('\n')
		if i+1 < len(text) {
			next = text[i+1]
		}
		if c == '\n' {
			if holdsCode {
				lines++
			}
			holdsCode = false
			if state != blockComment && state != '`' {
				state = code
			}
			continue
		}
		switch state {
		case code:
			if c == '/' && (next == lineComment || next == blockComment) {
				state = next
				i++
				continue
			}
			if c == '"' || c == '\'' || c == '`' {
				state = c
			}
		case blockComment:
			if c == '*' && next == '/' {
				state = code
				i++
			}
			continue
		case lineComment:
			continue
		case c:
			state = code
		default:
			if c == '\\' && state != '`' && next != '\n' {
				i++
			}
		}
		holdsCode = holdsCode || !unicode.IsSpace(rune(c))
	}
	if holdsCode {
		lines++
	}
	return lines
}
