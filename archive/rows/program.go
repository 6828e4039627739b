package rows

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
)

// This file says which commands count as runs of one program.

// programBytes is the number of bytes of a command that count. The daemon keeps at least as many of each command, with any name of the job.
const programBytes = 440

// launchers are executables that run the command after their own options and settings (A=b).
var launchers = []string{"env", "nohup", "setsid", "time"}

// interpreter says how an executable is told what it runs.
type interpreter struct {
	code   string   // letter of the option before code, alone or after other letters; "": none
	module string   // option before a module or archive; "": none
	valued []string // options with a value in the next word
	flags  []string // nil: as valued says; else each option has a value in the next word except these, and those with "="
}

// interpreters are executables that run a script. Digits and points after the name do not count, as in python3.12.
var interpreters = map[string]interpreter{
	"python": python, "pypy": python,
	"bash": shell, "sh": shell, "dash": shell, "zsh": shell,
	"perl": {code: "e", valued: []string{"-I"}}, "ruby": {code: "e", valued: []string{"-I", "-r"}},
	"node": {code: "e", valued: []string{"-r", "--require", "--import", "--loader"}}, "julia": {code: "e", valued: []string{"-p", "-t", "-J", "-L"}},
	"Rscript": {code: "e"}, "lua": {code: "e", valued: []string{"-l"}},
	"java":     {module: "-jar", valued: []string{"-cp", "-classpath", "--class-path", "-p", "--module-path"}},
	"torchrun": {module: "-m", flags: []string{"--standalone", "--no-python", "--no_python", "--run-path", "--run_path"}},
}

var (
	python = interpreter{code: "c", module: "-m", valued: []string{"-W", "-X"}}
	shell  = interpreter{code: "c", valued: []string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}}
)

// isCode reports whether the word after an option is code: -c, -lc.
func (i *interpreter) isCode(option string) bool {
	return i.code != "" && len(option) > 1 && option[0] == '-' && option[1] != '-' && strings.HasSuffix(option, i.code)
}

// hasValue reports whether the word after a word is its value.
func (i *interpreter) hasValue(word string) bool {
	if i.flags != nil {
		return strings.HasPrefix(word, "-") && !strings.Contains(word, "=") && !slices.Contains(i.flags, word)
	}
	return slices.Contains(i.valued, word)
}

// Hidden returns a program for a store that must not have the names of scripts and modules: the executable and a hash, "python3 #1a2b3c4d".
// Equal programs have equal hashes.
func Hidden(program string) string {
	name, _, more := strings.Cut(program, " ")
	if !more {
		return name
	}
	return name + " " + hashOf(program)
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "#" + hex.EncodeToString(sum[:4])
}

// ProgramOf returns what repeated runs of a command have in common: the name of the executable, for an interpreter with its script or
// module. If it runs code that is an argument, a hash stands for the code and the arguments behind it.
func ProgramOf(command string) string {
	words := strings.Fields(command[:min(len(command), programBytes)])
	for len(words) > 1 && slices.Contains(launchers, path.Base(words[0])) {
		for words = words[1:]; len(words) > 1 && (strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=")); {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return ""
	}
	name := path.Base(words[0])
	with, known := interpreters[strings.TrimRight(name, "0123456789.")]
	if !known {
		return name
	}
	for i := 1; i < len(words); i++ {
		switch word := words[i]; {
		case with.module != "" && word == with.module:
			return strings.Join(append([]string{name}, words[i:min(i+2, len(words))]...), " ")
		case with.isCode(word) && i+1 < len(words):
			return name + " " + word + " " + hashOf(strings.Join(words[i+1:], " "))
		case with.hasValue(word):
			i++
		case !strings.HasPrefix(word, "-"):
			return name + " " + path.Clean(word)
		}
	}
	return name
}
