package config

// This file proposes words for a misspelled word. schema.go uses it for keys, and cmd/gpuarb for
// commands.

import (
	"cmp"
	"slices"
	"strings"
)

// maxNear bounds the number of words that are proposed.
const maxNear = 3

// Near returns the known words that the user may have meant. These are the words with the fewest
// changed letters, if few letters differ. For example, "user" is near match.user.
func Near(word string, known []string) []string {
	type candidate struct {
		word     string
		distance int
	}
	var near []candidate
	lower := strings.ToLower(word)
	for _, k := range known {
		d := distance(lower, k)
		_, last, dotted := strings.Cut(k, ".")
		if dotted {
			d = min(d, distance(lower, last)+1)
		}
		if d <= max(1, len(word)/3) && d < len(word) {
			near = append(near, candidate{k, d})
		}
	}
	slices.SortStableFunc(near, func(x, y candidate) int {
		return cmp.Or(cmp.Compare(x.distance, y.distance), cmp.Compare(x.word, y.word))
	})
	words := make([]string, 0, maxNear)
	for _, c := range near[:min(len(near), maxNear)] {
		if c.distance == near[0].distance {
			words = append(words, c.word)
		}
	}
	return words
}

// distance returns the number of edits between two words. An edit changes, removes or inserts a
// letter, or swaps two neighbours.
func distance(from, to string) int {
	a, b := []rune(from), []rune(to)
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range b {
		rows[0][j+1] = j + 1
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(change, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// AndList joins words for messages: "a, b and c".
func AndList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
