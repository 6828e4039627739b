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

// This file makes the names of programs, jobs and users in sentences. sentences.go has the sentences.

// Bounds of foreign texts in runes: of a name in a sentence, and of a command at the beginning of a sentence.
const (
	maxName   = 64
	maxCaller = 40
)

// Plain returns a text that others chose in a form that is safe in a sentence on a terminal.
func Plain(text string) string { return cut(text, maxName) }

// cut does the work of Plain with another bound.
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

// Process returns the name of a client: "ffmpeg[1234]", or "train-a (ffmpeg[1234])" in a job with a name.
func Process(exe, command, job string, pid int) string {
	first, _, _ := strings.Cut(command, " ")
	name := Plain(path.Base(cmp.Or(exe, first, "process"))) + "[" + strconv.Itoa(pid) + "]"
	if job != "" {
		return Plain(job) + " (" + name + ")"
	}
	return name
}

// Stranger returns the name of a process without a lease: "blender[7]". The name of a process that keeps the memory of an ended one already
// contains its PID.
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

// Job returns the name of a job: "job 3 (python3)", or "train-a (job 3, python3)".
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

// WhatStillRuns returns the name of a job whose command has ended, with its remaining processes (left): "job 3 (bash; still runs:
// ssh-agent[4711])". If left is empty it returns the name of the job.
func WhatStillRuns(job, left string) string {
	if left == "" {
		return job
	}
	if inside, ok := strings.CutSuffix(job, ")"); ok {
		return inside + fmt.Sprintf("; "+StillRuns+")", left)
	}
	return job + fmt.Sprintf(" ("+StillRuns+")", left)
}

// User returns the name of a user, or "user" with the number if there is no name.
func User(uid uint32, name string) string {
	return "user " + cmp.Or(Plain(name), strconv.FormatUint(uint64(uid), 10))
}

// NotRoot returns the end of a refusal, which explains why the namespaces of the asker keep it from being treated as root. It is empty if
// namespace is 0: the asker is then not root in any namespace.
func NotRoot(namespace uint64) string {
	if namespace == 0 {
		return ""
	}
	return notRoot
}

// Setter returns the name of the user who changed a limit: "root", the name of the limit's owner, or "user 4711".
func Setter(uid, owner uint32, name string) string {
	switch {
	case uid == 0:
		return "root"
	case uid == owner && name != "" && name != strconv.FormatUint(uint64(uid), 10):
		return Plain(name)
	}
	return User(uid, "")
}

// Owned puts the user before the name of the user's program: "ann's python3[42]". A user without a name is shown by number.
func Owned(user, name string) string {
	if user == "" {
		return name
	}
	if _, err := strconv.ParseUint(user, 10, 32); err == nil {
		user = "user " + user
	}
	return Plain(user) + "'s " + name
}

// Holder returns a holder as part of a sentence. It includes the bytes if the holder holds memory, kind ("reserved" or "unmanaged") if it
// is not a client, and how long it has held if since is not zero.
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

// List joins the names of some of count programs or jobs, and adds how many more there are. If there are no names, but count is not
// zero, it returns the number alone: "another program", "3 other programs".
func List(names []string, count int) string {
	text, more := strings.Join(names, ", "), count-len(names)
	switch {
	case more <= 0:
	case len(names) > 0:
		text += fmt.Sprintf(" and %d more", more)
	case more == 1:
		text = Another
	default:
		text = fmt.Sprintf("%d other programs", more)
	}
	return text
}

// Caller returns the beginning of a message about a program, which distinguishes the programs that write to one log: "train.py 3 (PID
// 1234)", or "train-a (train.py 3, PID 1234)".
func Caller(name, command string, pid int) string {
	first, rest, _ := strings.Cut(command, " ")
	command = cut(strings.TrimSpace(path.Base(first)+" "+rest), maxCaller)
	if name == "" {
		return fmt.Sprintf("%s (PID %d)", command, pid)
	}
	return fmt.Sprintf("%s (%s, PID %d)", Plain(name), command, pid)
}

// Span formats a duration for a sentence.
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
