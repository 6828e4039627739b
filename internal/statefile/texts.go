package statefile

// This file writes and reads texts in records: the command and the name of a job. daemon/jobs.go and
// daemon/jobopen.go use it.

import (
	"bytes"
)

// SetTexts stores two texts in a field: the second after the NUL of the first, where daemons that know only one text
// do not read. If both do not fit, it truncates the first.
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

// SecondOf returns the second text of a field.
func SecondOf(field *[textSize]byte) string {
	_, rest, _ := bytes.Cut(field[:], []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	return string(second)
}

// TextOf returns the first text of a field.
func TextOf(field *[textSize]byte) string {
	text, _, _ := bytes.Cut(field[:], []byte{0})
	return string(text)
}
