package rules

import (
	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// Job is what a job's limits follow from.
type Job struct {
	Rule       *Terms
	Asked      Request
	Live       *Limits
	UserLimits *Limits // what all programs of its user may hold; nil: no limit
}

// Request is what a job or a program asks to be limited to.
type Request struct {
	Max, Min   *accounting.Size // nil: as the rule says
	Streams    int              // of each lease; 0: as the rule says
	PerProcess bool             // they are each process's own
	MayPass    bool             // who asks may pass the rule
	Processor  bool             // the processor is one of the devices that it names
}

// Each reports whether the job's limits are each process's own.
func (j *Job) Each() bool { return j.Asked.PerProcess || j.Rule.Scope == ScopeProcess }

// Memory is what all processes of the job together may hold on a device, and what is kept for them.
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

// Streams is how many streams each lease of the job may have.
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
	return s
}

// Client is what the limits of one process of a job follow from. What it asks for itself comes
// from its environment.
type Client struct {
	Job   *Job
	Asked Request
	Live  *Limits
}

// Follows reports whether a change of its job's limits may change the process's own.
func (c *Client) Follows() bool {
	return c.Job.Each() || c.Live != nil // which may be all of memory.max
}

// Memory is what the process may hold on a device, and what is kept for it.
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
		m.Min = min(m.Min, j.Memory(b).Max) // of what its job has in all
	}
	return m
}

// Streams is how many streams each lease of the process may have.
func (c *Client) Streams() Streams {
	s := c.Job.Streams()
	s.asked(c.Asked.Streams, "GPUARB_STREAMS"+wording.InEnvironment)
	s.change(c.Live)
	c.Job.UserLimits.lower(&s)
	return s
}

// reserve adds what a rule reserves: nothing on a device that is too small for it, and no more
// than can be reserved there. It is meant for GPUs: where the processor is a device too, a rule takes nothing of the
// machine's memory for each program, whether it computes there or not.
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

// request lowers limits to what a job's request asks; root's request takes the
// place of the rule's.
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
