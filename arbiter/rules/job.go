package rules

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// This file computes the limits of jobs and of their processes from their sources. rule.go computes those of rules, and table.go those of
// live limits.

// Job has the sources of a job's limits.
type Job struct {
	Rule       *Terms
	Asked      Request
	Live       *Limits
	UserLimits *Limits // limits for all programs of its user together; nil: none
	Around     *Job    // job of a cgroup inside which the job is, and whose limit of streams it cannot exceed; nil: none
}

// Request lists the limits that a job or a program asked for.
type Request struct {
	Max, Min   *accounting.Size // nil: as the rule says
	Streams    int              // streams of each lease; 0: as the rule says
	PerProcess bool             // the limits apply to each process separately
	MayPass    bool             // the asker may exceed the rule
	Processor  bool             // the request names the processor as a device
}

// Each reports whether the job's limits apply to each process separately.
func (j *Job) Each() bool { return j.Asked.PerProcess || j.Rule.Scope == ScopeProcess }

// Memory returns the memory limits on a device of all processes of the job together.
func (j *Job) Memory(b Bounds) Memory {
	m := Unlimited()
	if j.Rule.Scope == ScopeJob {
		m = j.Rule.Memory(b)
		if !j.Asked.PerProcess {
			m.reserve(j.Rule, b)
		}
	}
	if !j.Asked.PerProcess {
		m.request(&j.Asked, b)
	}
	if !j.Each() {
		m.change(j.Live, b)
	}
	return m
}

// Streams returns the limit of streams of each lease of the job.
func (j *Job) Streams() Streams {
	const flag = "gpuarb run --streams"
	s := j.Rule.Streams()
	if n := j.Asked.Streams; n != 0 && j.Asked.MayPass {
		s = Streams{n, n, flag}
	} else {
		s.asked(n, flag)
	}
	s.change(j.Live)
	j.UserLimits.lower(&s)
	if j.Around != nil {
		if around := j.Around.Streams(); around.Max < s.Max {
			return around
		}
	}
	return s
}

// Client has the sources of the limits of one process. Asked comes from the environment of the process.
type Client struct {
	Job   *Job
	Asked Request
	Live  *Limits
}

// Follows reports whether a change of the job's limits may change the limits of the process.
func (c *Client) Follows() bool {
	return c.Job.Each() || c.Live != nil // a live memory.min of "max" follows the memory.max of the job
}

// Memory returns the memory limits of the process on a device.
func (c *Client) Memory(b Bounds) Memory {
	j := c.Job
	m := Unlimited()
	if j.Rule.Scope == ScopeProcess {
		m = j.Rule.Memory(b)
		m.reserve(j.Rule, b)
	}
	if j.Asked.PerProcess {
		m.request(&j.Asked, b)
	}
	if j.Each() {
		m.change(j.Live, b)
	}
	if c.Asked.Max != nil {
		if most := b.Amount(*c.Asked.Max); most < m.Max {
			m.Max, m.MaxBy = most, "GPUARB_MEMORY"+wording.InEnvironment
		}
	}
	m.change(c.Live, b)
	if least := c.Live.last(b.Device, MemoryMin); least != nil && least.Max {
		m.Min = min(m.Min, j.Memory(b).Max) // "max": all that the job may hold
	}
	return m
}

// Streams returns the limit of streams of each lease of the process.
func (c *Client) Streams() Streams {
	s := c.Job.Streams()
	s.asked(c.Asked.Streams, "GPUARB_STREAMS"+wording.InEnvironment)
	s.change(c.Live)
	c.Job.UserLimits.lower(&s)
	return s
}

// reserve sets the memory.min of a rule, but at most what can be reserved on the device, and nothing on a device that is too small. It
// applies to GPUs only: a rule does not reserve memory of the machine for each program, whether the program computes there or not.
func (m *Memory) reserve(t *Terms, b Bounds) {
	if b.Processor {
		return
	}
	if n := b.Reserves(t.Min); n <= b.Total {
		m.Min = min(n, b.Reservable)
	}
	if m.Min > 0 {
		m.MinBy = t.Name
	}
	m.most.Min = m.Min
}

// request lowers the limits to those that a job asked for. The request of a privileged user replaces the limits of the rule.
func (m *Memory) request(r *Request, b Bounds) {
	if r.Max != nil {
		if most := b.Amount(*r.Max); most < m.Max || r.MayPass {
			m.Max, m.MaxBy = most, "gpuarb run --memory"
		}
	}
	if r.Min != nil && (!b.Processor || r.Processor) {
		m.Min, m.MinBy = b.Reserves(*r.Min), "gpuarb run --min"
	}
	if r.MayPass {
		m.most.Max = m.Max
	}
	m.most.Min = m.Min
}
