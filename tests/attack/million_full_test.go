//go:build full

package attack

import "testing"

// This file has the long form of TestManyMessages in million_test.go, for `make test-full`.

// TestFullMillionMessages: a million arbitrary messages and 10,000 hostile sessions, beside
// honest programs whose answers are checked.
func TestFullMillionMessages(t *testing.T) {
	besideHonest(t, 1_000_000, 10_000)
}
