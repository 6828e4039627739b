package wording

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gpuarb/gpuarb/accounting"
)

// Bounds of what others chose, in runes: a name in a sentence, and the command at the beginning of one.
const (
	maxName   = 64
	maxCaller = 40
)

// Plain makes a text that others chose fit for a sentence on a terminal.
func Plain(text string) string { return cut(text, maxName) }

// cut is Plain with a bound of its own.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Process is a client: "ffmpeg[1234]", or "train-a (ffmpeg[1234])" in a job with a name.
func Process(exe, command, job string, pid int) string {
	first, _, _ := strings.Cut(command, " ")
	name := Plain(path.Base(cmp.Or(exe, first, "process"))) + "[" + strconv.Itoa(pid) + "]"
	if job != "" {
		return Plain(job) + " (" + name + ")"
	}
	return name
}

// Stranger is a process that is no client: "blender[7]", or the name of the process that keeps the
// memory of a dead one, which has its PID already.
func Stranger(command string, pid int) string {
	name, _, _ := strings.Cut(command, " ")
	if strings.HasSuffix(name, "]") {
		return Plain(command)
	}
	if strings.HasPrefix(name, "/") {
		name = path.Base(name)
	}
	return fmt.Sprintf("%s[%d]", Plain(name), pid)
}

// Job is a job: "job 3 (python3)", or "train-a (job 3, python3)".
func Job(id uint64, name, command string) string {
	number, words := fmt.Sprintf("job %d", id), strings.Fields(command)
	var what []string
	if name != "" {
		what = append(what, number)
		number = Plain(name)
	}
	if len(words) > 0 {
		what = append(what, Plain(path.Base(words[0])))
	}
	if what == nil {
		return number
	}
	return number + " (" + strings.Join(what, ", ") + ")"
}

// WhatStillRuns returns the name of a job whose command has ended, with the processes left that go on: "job 3 (bash; still
// runs: ssh-agent[4711])". If left is empty it returns the name alone.
func WhatStillRuns(job, left string) string {
	if left == "" {
		return job
	}
	if inside, ok := strings.CutSuffix(job, ")"); ok {
		return inside + fmt.Sprintf("; "+StillRuns+")", left)
	}
	return job + fmt.Sprintf(" ("+StillRuns+")", left)
}

// User is a user, by name where there is one.
func User(uid uint32, name string) string {
	return "user " + cmp.Or(Plain(name), strconv.FormatUint(uint64(uid), 10))
}

// NotRoot returns the end of a refusal, which explains that the asker is not taken for root because of its namespaces. It is empty if
// namespace is 0: then the asker is not root in any namespace.
func NotRoot(namespace uint64) string {
	if namespace == 0 {
		return ""
	}
	return notRoot
}

// Setter is who changed a limit of what somebody owns: "root", the owner's name, or "user 4711".
func Setter(uid, owner uint32, name string) string {
	switch {
	case uid == 0:
		return "root"
	case uid == owner && name != "" && name != strconv.FormatUint(uint64(uid), 10):
		return Plain(name)
	}
	return User(uid, "")
}

// Owned puts the user before the name of what is his: "ann's python3[42]". A user without a
// name is known by his number.
func Owned(user, name string) string {
	if user == "" {
		return name
	}
	if _, err := strconv.ParseUint(user, 10, 32); err == nil {
		user = "user " + user
	}
	return Plain(user) + "'s " + name
}

// Holder is who holds what others want: so many bytes where it is memory, "reserved" or "unmanaged" where
// it is not a client's, and for how long where a time is given.
func Holder(owned string, bytes accounting.Bytes, kind string, now, since time.Time) string {
	if bytes > 0 {
		owned += " " + bytes.Human()
	}
	if kind != "" {
		owned += " (" + kind + ")"
	}
	if !now.IsZero() && !since.IsZero() {
		owned += " for " + Span(now.Sub(since))
	}
	return owned
}

// List joins names, and says how many more there are of so many.
func List(names []string, count int) string {
	text := strings.Join(names, ", ")
	if more := count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Caller is how a message that a program prints tells whom it is about, so that several in one
// log can be told apart: "train.py 3 (PID 1234)", or "train-a (train.py 3, PID 1234)".
func Caller(name, command string, pid int) string {
	first, rest, _ := strings.Cut(command, " ")
	command = cut(strings.TrimSpace(path.Base(first)+" "+rest), maxCaller)
	if name == "" {
		return fmt.Sprintf("%s (PID %d)", command, pid)
	}
	return fmt.Sprintf("%s (%s, PID %d)", Plain(name), command, pid)
}

// Span writes a duration for a sentence.
func Span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d h", d/time.Hour)
}
