package accounting

import "testing"

// A message shows an exact number of bytes, and a rounded number with a unit beside it if the unit does not divide the number.
// ledger_test.go tests the rounded form alone, and sums that stop at Max.

func TestExact(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1 KiB",
		1025: "1025 bytes (1 KiB)", 3317760: "3317760 bytes (3.1 MiB)", 4 << 30: "4 GiB", Max: "max"} {
		if got := b.Exact(); got != want {
			t.Errorf("%d: %q, want %q", uint64(b), got, want)
		}
	}
}
