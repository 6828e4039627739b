package arbiter

import (
	"cmp"
	"fmt"

	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file makes the names of processes, jobs, holders of slots and requests for messages, events and notices. explain.go, holders.go and
// record.go call it.

// name returns the name of a process for messages.
func (s *session) name() string {
	return wording.Process(s.process.Exe, s.process.Command, s.job.request.Name, s.process.PID)
}

// name returns the name of a job for messages.
func (j *job) name() string {
	if !j.run && len(j.sessions) == 1 {
		return j.sessions[0].name()
	}
	name := wording.Job(uint64(j.id), j.request.Name, cmp.Or(j.request.Command, j.request.Process.Command))
	return wording.WhatStillRuns(name, j.stillRuns())
}

// owned returns the name of a job with its user for messages. For the job of a cgroup, the user is that of the programs in the job, and not
// root, who opened the job. If these programs belong to several users, or there are no programs, owned returns the name alone.
func (j *job) owned() string {
	user := j.request.Process.User
	if j.request.Cgroup != "" {
		user = ""
		for _, s := range j.sessions {
			if user != "" && s.process.User != user {
				return j.name()
			}
			user = s.process.User
		}
	}
	return wording.Owned(user, j.name())
}

// owned returns the name of a holder with its user for messages.
func (h *holder) owned() string {
	if h.Process != nil {
		return wording.Owned(h.Process.process.User, h.name())
	}
	return h.Job.owned()
}

// name returns the name of a holder for messages.
func (h *holder) name() string {
	switch s := h.Process; {
	case s == nil:
		return h.Job.name()
	case h.Thread != 0:
		return fmt.Sprintf(wording.Thread, h.Thread, s.name())
	default:
		return s.name()
	}
}

// name returns the name of the process or job that waits, for messages.
func (t *ticket) name() string {
	if t.session != nil {
		return t.session.name()
	}
	return t.job.name()
}

// nameFor returns the name of the process or job that waits, for a message to a program. within limits the names, as in
// asker.
func (t *ticket) nameFor(within *job) string {
	if within != nil && t.job != within && !t.job.isInside(within) {
		return wording.Another
	}
	return t.name()
}

// namesWithin returns the job of a cgroup to which the names in messages about a ticket are limited, as asker.within. It does not depend on
// the reader: programs inside can read the messages as events, so that the messages for root have no more names. For a request to open the
// job of a cgroup, namesWithin begins at the job around that one.
func (t *ticket) namesWithin() *job {
	if t.kind == wantsJob && t.job.request.Cgroup != "" {
		return t.job.around.binding()
	}
	return t.job.binding()
}

// stillRuns returns the names of the processes that go on after the job's command has ended: its clients, else the process that was passed
// to CommandEnded. "": the command goes on, or no such process is known.
func (j *job) stillRuns() string {
	if !j.commandEnded {
		return ""
	}
	var names []string
	count := 0
	for _, s := range j.sessions {
		if !s.alive() {
			continue
		}
		if count++; count <= namedHolders {
			names = append(names, wording.Process(s.process.Exe, s.process.Command, "", s.process.PID))
		}
	}
	if count > 0 {
		return wording.List(names, count)
	}
	return j.survivor
}

// namedHolders is how many holders a message names. It gives only the number of the others.
const namedHolders = 3

// CallerIn returns the beginning of a message that a process of a job prints. id is 0 for a process without a runner.
func (a *Arbiter) CallerIn(id JobID, p rules.Process) string {
	name := ""
	if j := a.jobs[id]; j != nil {
		name = j.request.Name
	}
	return wording.Caller(name, p.Command, p.PID)
}

// JobName returns the name of a job for messages: "job 3 (python3)".
func (a *Arbiter) JobName(id JobID) string {
	if j := a.jobs[id]; j != nil {
		return j.name()
	}
	return wording.Job(uint64(id), "", "")
}

// RuleName returns the name of the rule with an ID ([rules.Terms.ID]), for the log and for messages.
func (a *Arbiter) RuleName(id uint64) string {
	if rule := a.policy.ByID(id); rule != nil {
		return rule.Key.String()
	}
	return wording.NoSuchRule
}
