package statefile

import (
	"strings"
	"testing"
)

// Two texts share one field: the first is what a daemon reads that knows of one alone.
func TestTwoTextsInOneField(t *testing.T) {
	for n := range 2 * textSize {
		var field [textSize]byte
		for i := range field {
			field[i] = 'x' // what was there before is gone
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
