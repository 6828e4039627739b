package statefile

// This file writes and reads texts in records: the command and the name of a job.

import (
	"bytes"
)

// SetTexts stores two texts in one field: the second behind the NUL of the first, where a daemon
// that knows of one alone does not look. It is the first that is cut to fit.
func SetTexts(field *[textSize]byte, s, second string) {
	*field = [textSize]byte{}
	copy(field[:textSize-1], s)
	if second == "" || len(second) > textSize-2 {
		return
	}
	end := min(len(TextOf(field)), textSize-2-len(second))
	clear(field[end:])
	copy(field[end+1:], second)
}

// SecondOf reads the second text of such a field.
func SecondOf(field *[textSize]byte) string {
	_, rest, _ := bytes.Cut(field[:], []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	return string(second)
}

// TextOf reads a record's text field.
func TextOf(field *[textSize]byte) string {
	text, _, _ := bytes.Cut(field[:], []byte{0})
	return string(text)
}
