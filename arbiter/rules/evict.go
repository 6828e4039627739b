package rules

import (
	"strings"
	"time"
)

// This file has the settings by which an idle job gives its memory back, so that a waiting request can be served, and later takes it again.
// The arbiter (evict.go and suspend.go there) chooses the jobs, and the daemon runs the commands.

// EvictHow is a way in which a job gives its memory back.
type EvictHow string

// Ways in which a job gives its memory back.
const (
	EvictNever  EvictHow = "never"
	EvictByHook EvictHow = "hook" // a command of the configuration asks the job's programs to free memory; they keep running
	EvictByUnit EvictHow = "unit" // systemd stops the service in which all processes of the job run
)

// EvictReturn is the occasion on which a job that gave its memory back takes it again, unless a user resumes it before.
type EvictReturn string

// Occasions for a return. "" means ReturnOnRoom for hooks with a command to resume, and ReturnOnUse for units and other hooks.
const (
	ReturnNever  EvictReturn = "never" // the arbiter does not resume the job by itself
	ReturnOnRoom EvictReturn = "room"  // when there is room and no request waits
	ReturnOnUse  EvictReturn = "use"   // when its unit is started again, or its programs take memory without being asked
)

// Command is a program and its arguments, separated by NUL. The first part is the path of the program; "": no command.
type Command string

// MakeCommand returns the command of a list, whose first element is the path of the program.
func MakeCommand(args []string) Command { return Command(strings.Join(args, "\x00")) }

// Args returns the parts of a command, beginning with the path of the program; nil: no command.
func (c Command) Args() []string {
	if c == "" {
		return nil
	}
	return strings.Split(string(c), "\x00")
}

// Evict has the settings for suspending a job. With the zero Evict, the job is never suspended.
type Evict struct {
	How             EvictHow      // "": EvictNever
	IdleAfter       time.Duration // time without use of its devices after which a job is idle
	MinResident     time.Duration // time from its return for which a job is not asked to make room
	Return          EvictReturn
	Suspend, Resume Command       // for EvictByHook: ask the job's programs to give their memory back, and to take it again
	Timeout         time.Duration // longest run of a command, or start or stop of a unit; 0: DefaultEvictTimeout
}

// EvictRule has the settings for suspending jobs that a rule gives. Fields that are nil have the policy's defaults.
type EvictRule struct {
	How                             *EvictHow
	IdleAfter, MinResident, Timeout *time.Duration
	Return                          *EvictReturn
	Suspend, Resume                 *Command
}

// Default times of eviction.
const (
	DefaultEvictIdle     = 2 * time.Minute
	DefaultEvictResident = time.Minute
	DefaultEvictTimeout  = 30 * time.Second
)

// with returns a copy of e in which the settings that a rule gives replace those of e.
func (e Evict) with(r *EvictRule) Evict {
	override(&e.How, r.How)
	override(&e.IdleAfter, r.IdleAfter)
	override(&e.MinResident, r.MinResident)
	override(&e.Timeout, r.Timeout)
	override(&e.Return, r.Return)
	override(&e.Suspend, r.Suspend)
	override(&e.Resume, r.Resume)
	return e
}

// Evicts reports whether a job with these settings may be asked to give its memory back.
func (e *Evict) Evicts() bool { return e.How != "" && e.How != EvictNever }

// Returns returns the occasion on which a suspended job returns, with the default in place of "".
func (e *Evict) Returns() EvictReturn {
	switch {
	case e.Return != "":
		return e.Return
	case e.How == EvictByUnit || e.Resume == "":
		return ReturnOnUse
	}
	return ReturnOnRoom
}

// ResumesItself reports whether a job is suspended by a hook and has no command to resume it: its programs take memory again when they are
// used.
func (e *Evict) ResumesItself() bool { return e.How == EvictByHook && e.Resume == "" }

// override sets *to to *given, unless given is nil.
func override[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}
