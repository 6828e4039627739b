package rows

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// This file says which commands count as runs of one program.

// interpreters are executables that run a script. Digits and points after the name do not count, as in python3.12.
var interpreters = []string{"python", "pypy", "perl", "ruby", "node", "bash", "sh", "dash", "zsh", "julia", "Rscript", "lua", "java", "torchrun"}

// Hidden returns a program for a store that must not have the names of scripts and modules: the executable and a hash, "python3 #1a2b3c4d".
// Equal programs have equal hashes.
func Hidden(program string) string {
	name, _, more := strings.Cut(program, " ")
	if !more {
		return name
	}
	sum := sha256.Sum256([]byte(program))
	return name + " #" + hex.EncodeToString(sum[:4])
}

// ProgramOf returns what repeated runs of a command have in common: the name of the executable, for an interpreter with its script or
// module.
func ProgramOf(command string) string {
	words := strings.Fields(command)
	if len(words) == 0 {
		return ""
	}
	name := path.Base(words[0])
	if !slices.Contains(interpreters, strings.TrimRight(name, "0123456789.")) {
		return name
	}
	for i, word := range words[1:] {
		switch {
		case word == "-m" || word == "-jar":
			return strings.Join(append([]string{name}, words[i+1:min(i+3, len(words))]...), " ")
		case word == "-c" || word == "-e":
			return name + " " + word
		case !strings.HasPrefix(word, "-"):
			return name + " " + path.Clean(word)
		}
	}
	return name
}
