package statefile

import (
	"strings"
	"testing"
)

// The command and the name of a job share one field of its record, in which earlier daemons see only the command.
// file_test.go tests records in general.

// TestTwoTextsInOneField checks two texts in one field. A daemon that knows only one text reads the first.
func TestTwoTextsInOneField(t *testing.T) {
	for n := range 2 * textSize {
		var field [textSize]byte
		for i := range field {
			field[i] = 'x' // earlier content must be gone
		}
		first := strings.Repeat("c", n)
		SetTexts(&field, first, "train-a")
		if SecondOf(&field) != "train-a" || TextOf(&field) != first[:min(n, textSize-2-len("train-a"))] {
			t.Fatalf("%d bytes: %q, %q", n, TextOf(&field), SecondOf(&field))
		}
		SetTexts(&field, first, "")
		if SecondOf(&field) != "" || TextOf(&field) != first[:min(n, textSize-1)] {
			t.Fatalf("%d bytes alone: %q, %q", n, TextOf(&field), SecondOf(&field))
		}
	}
}
