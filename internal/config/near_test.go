package config

import (
	"slices"
	"testing"
)

// A misspelt key or word gets a suggestion if few letters differ from a known one, and none
// otherwise. mistake_test.go tests the messages with suggestions.

func TestNear(t *testing.T) {
	keys := []string{"match.user", "match.unit", "memory.max", "memory.min", "scope", "streams.max"}
	for word, want := range map[string][]string{
		"match.usr":   {"match.user"},
		"user":        {"match.user"},
		"memory.mxa":  {"memory.max"},
		"memory.mox":  {"memory.max"},
		"Scope":       {"scope"},
		"sc":          {},
		"memory.m":    {"memory.max", "memory.min"},
		"colour":      {},
		"x":           {},
		"":            {},
		"matchs.unit": {"match.unit"},
	} {
		if got := Near(word, keys); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}
