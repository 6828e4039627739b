package main

import (
	"cmp"
	"strings"
)

// How words are written for a shell, which reads them back as they were.

// commandLine writes words as a shell reads them.
func commandLine(words ...string) string {
	var all []string
	for _, word := range words {
		all = append(all, cmp.Or(quote(word), "''"))
	}
	return strings.Join(all, " ")
}

// quote spells a word as a shell reads it back.
func quote(word string) string {
	plain := func(r rune) bool {
		return strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+=", r)
	}
	if strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
