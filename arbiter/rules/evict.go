package rules

import (
	"strings"
	"time"
)

// This file has the settings by which a job gives its memory back while it is idle, so that a waiting request can be served, and takes it
// again later. The arbiter chooses the jobs, and the daemon runs the commands.

// EvictHow is how a job gives its memory back.
type EvictHow string

// Ways in which a job gives its memory back.
const (
	EvictNever  EvictHow = "never"
	EvictByHook EvictHow = "hook" // a command of the configuration asks its programs; they keep running
	EvictByUnit EvictHow = "unit" // systemd stops the service that has all processes of the job
)

// EvictReturn is when a job that gave its memory back takes it again without being told.
type EvictReturn string

// Values of EvictReturn. "" is ReturnOnRoom for hooks with a command to resume, and ReturnOnUse for units and other hooks.
const (
	ReturnNever  EvictReturn = "never"
	ReturnOnRoom EvictReturn = "room" // when there is room and no request waits
	ReturnOnUse  EvictReturn = "use"  // when its unit is started again, or its programs take memory without being asked
)

// Command is a list of arguments, separated by NUL, of which the first is the path of a program; "": none.
type Command string

// MakeCommand returns a command with these arguments.
func MakeCommand(args []string) Command { return Command(strings.Join(args, "\x00")) }

// Args returns the arguments of a command; nil: none.
func (c Command) Args() []string {
	if c == "" {
		return nil
	}
	return strings.Split(string(c), "\x00")
}

// Evict are the settings for suspending a job. The zero Evict suspends nothing.
type Evict struct {
	How             EvictHow      // "": EvictNever
	IdleAfter       time.Duration // a job is idle if it has not used its devices for this long
	MinResident     time.Duration // a job that has returned is not asked to make room for this long
	Return          EvictReturn
	Suspend, Resume Command       // for EvictByHook: asks the job's programs to give their memory back, and to take it again
	Timeout         time.Duration // longest run of a command, start or stop; 0: DefaultEvictTimeout
}

// EvictRule are the settings that a rule gives; nil: as the defaults say.
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

// with returns e with the settings of a rule that are not nil in place of its own.
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

// Evicts reports whether jobs may be asked to give their memory back.
func (e *Evict) Evicts() bool { return e.How != "" && e.How != EvictNever }

// Returns returns when a suspended job returns without being told.
func (e *Evict) Returns() EvictReturn {
	switch {
	case e.Return != "":
		return e.Return
	case e.How == EvictByUnit || e.Resume == "":
		return ReturnOnUse
	}
	return ReturnOnRoom
}

// ResumesItself reports whether a job has no command to resume: its programs take memory again when they are used.
func (e *Evict) ResumesItself() bool { return e.How == EvictByHook && e.Resume == "" }

// override sets *to to *given, unless given is nil.
func override[T any](to, given *T) {
	if given != nil {
		*to = *given
	}
}
