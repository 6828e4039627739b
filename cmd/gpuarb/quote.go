package main

import (
	"cmp"
	"strings"
)

// This file quotes words for a shell: in advice that users paste into a shell, and in output that a
// shell evaluates. claim.go and privileged.go use it.

// commandLine joins words to a command line, which a shell splits into the same words.
func commandLine(words ...string) string {
	var all []string
	for _, word := range words {
		all = append(all, cmp.Or(quote(word), "''"))
	}
	return strings.Join(all, " ")
}

// quote returns the word in quotes if a shell would change it otherwise. The empty word stays
// empty.
func quote(word string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+=", r)
	}
	if strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
