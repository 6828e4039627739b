package main

import (
	"cmp"
	"strings"
)

// This file quotes words for a shell: in advice that users paste into one, and in output that a shell evaluates.

// commandLine joins words to a command line that a shell splits into the same words.
func commandLine(words ...string) string {
	var all []string
	for _, word := range words {
		all = append(all, cmp.Or(quote(word), "''"))
	}
	return strings.Join(all, " ")
}

// quote returns a word in quotes, if it needs any, so that a shell reads the same word. The empty word stays empty.
func quote(word string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+=", r)
	}
	if strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
