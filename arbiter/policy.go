package arbiter

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/steps"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// SetPolicy puts a new configuration in force, for running leases too. Limits that
// were changed live stay; what is lowered below what is held is over, as by SetJobLimits.
func (a *Arbiter) SetPolicy(now time.Time, p rules.Policy) {
	defer a.serveQueues(now)
	charged := a.policy.ChargeOverhead
	a.policy = p.InForce()
	for _, d := range a.devices {
		a.configure(d)
		if a.policy.ChargeOverhead {
			clear(d.headrooms)
			d.headroom = 0
		}
		a.recap(now, d)
		a.slotsChanged(d)
	}
	a.outdate(nil)
	if charged && !a.policy.ChargeOverhead {
		a.keepHeadrooms()
	}
	a.event(Event{Time: now, Kind: EventPolicy, Device: -1, Text: fmt.Sprintf(wording.Configured, len(p.Rules))})
}

// Rule returns what the rule with a number ([rules.Terms.ID]) gives now. False: there is no such rule.
func (a *Arbiter) Rule(id uint64) (rules.Terms, bool) { return a.policy.ByID(id) }

// SetRuleLimits changes memory.max and streams.max of a rule, for those under it and those who come
// later, whether they share its budget or each have their own; the next SetPolicy undoes it.
// ErrNoRule, ErrRange, ErrNoDevice, ErrPermission (only root may).
func (a *Arbiter) SetRuleLimits(now time.Time, id uint64, c rules.Change) error {
	rule, ok := a.policy.ByID(id)
	if !ok {
		return ErrNoRule
	}
	who := rule.Key.String()
	if c.Min != nil {
		return rules.Wrong(rules.ErrRange, wording.RuleMinIsFixed, who)
	}
	if !c.MayPass() {
		return c.Denied(wording.RuleIsRoots, who)
	}
	c.Lowers = false
	edit, err := a.edit(c, who, limitEdit{owner: &rules.Process{}, live: &rule.Live, whose: who, now: rule.Memory, streams: rule.Streams})
	if err != nil {
		return err
	}
	defer a.serveQueues(now)
	a.policy.Lay(rule.Key, rule.Live)
	a.outdate(nil)
	a.audit(now, c, edit)
	return nil
}

// outdate has the rules and limits of some jobs (nil: of all), and of their processes, put in force anew, in steps. Whoever
// asks is done first.
func (a *Arbiter) outdate(which func(*job) bool) {
	var all []*job
	for _, j := range a.jobs {
		if !j.outdated && (which == nil || which(j)) {
			j.outdated = true
			all = append(all, j)
		}
	}
	steps.Each(&a.steps, 1, all, a.updateJob)
	a.steps.Later(func(now time.Time) {
		for p := range a.overs {
			a.squeeze(now, p)
		}
	})
}

// update puts the rules and limits of a process and its job in force, where they may have changed.
func (a *Arbiter) update(now time.Time, s *session) {
	a.updateJob(now, s.job)
	a.updateSession(now, s)
}

// updateJob does so for a job; its processes follow.
func (a *Arbiter) updateJob(now time.Time, j *job) {
	if !j.outdated || a.jobs[j.id] != j {
		return
	}
	j.outdated = false
	j.Rule = a.policy.For(j.request.Process)
	a.moveTo(j.budget, &j.shared, a.shareFor(j), a.ledger.MoveBudget)
	a.capJob(j)
	a.relimit(now, a.jobChanges(j))
	for _, s := range j.sessions {
		s.outdated = true
	}
	steps.Each(&a.steps, 1, slices.Clone(j.sessions), a.updateSession)
	a.steps.Later(func(time.Time) { a.stir(j) }) // what it asks for may be another thing by now, though no sum has changed
}

// updateSession does so for a process.
func (a *Arbiter) updateSession(now time.Time, s *session) {
	if !s.outdated || a.sessions[s.id] != s {
		return
	}
	s.outdated = false
	a.capSession(s)
	a.relimit(now, a.sessionChanges(nil, s))
	for _, l := range s.leases {
		a.noteChain(l) // a job that moved may have brought more than there is room for
		l.SetStreamsMax(s.Streams().Max)
		a.relend(l)
		if l.lost || !s.alive() {
			continue
		}
		if l.closed && !l.Over() {
			l.closed = false
			a.flag(l)
		}
		l.word.Limit(l.maxInForce())
		if a.reflag(l); l.contended() { // somebody may wait at a budget that it has come under
			a.recallAll(l)
		}
	}
}

// moveTo has a budget of a job's, or of a process of it, count at another shared budget than it did; nil: at none.
func (a *Arbiter) moveTo(b *accounting.Budget, at **shared, to *shared, put func(b, up *accounting.Budget) error) {
	old := *at
	if to == old {
		return
	}
	*at = to
	a.stirOwner(b)
	for _, d := range a.devices {
		d.changes++ // what it holds leaves less to others that are there
	}
	if err := put(b, budgetOf(to)); err != nil {
		panic("arbiter: " + err.Error()) // a job's is above no other one, and no cap
	}
	a.dropShared(old)
}
