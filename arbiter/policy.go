package arbiter

import (
	"fmt"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/arbiter/wording"
)

// SetPolicy puts a new configuration in force, for running leases too. Limits that
// were changed live stay; what is lowered below what is held is over, as by SetJobLimits.
func (a *Arbiter) SetPolicy(now time.Time, p rules.Policy) {
	defer a.cycle(now)
	charged := a.policy.ChargeOverhead
	a.policy = p.InForce()
	for _, d := range a.devices {
		a.configure(d)
		a.recap(now, d)
		a.slotsChanged(now, d)
	}
	a.outdate(now, nil)
	if charged != a.policy.ChargeOverhead {
		a.keepHeadrooms(now)
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
	defer a.cycle(now)
	a.policy.Lay(rule.Key, rule.Live)
	a.outdate(now, nil)
	a.audit(now, c, edit)
	return nil
}

// outdate applies the rules and limits of some jobs (nil: of all) and of their processes again.
func (a *Arbiter) outdate(now time.Time, which func(*job) bool) {
	for _, j := range a.jobs {
		if which == nil || which(j) {
			a.updateJob(now, j)
		}
	}
	for p := range a.overs {
		a.squeeze(now, p)
	}
	a.changed() // what jobs ask for may be another thing by now, though no sum has changed
}

// updateJob does so for a job.
func (a *Arbiter) updateJob(now time.Time, j *job) {
	j.Rule = a.policy.For(j.request.Process)
	a.moveTo(j.budget, &j.shared, a.shareFor(j), a.ledger.MoveBudget)
	a.capJob(j)
	a.relimit(now, a.jobChanges(j))
	for _, s := range j.sessions {
		a.updateSession(now, s)
	}
}

// updateSession does so for a process.
func (a *Arbiter) updateSession(now time.Time, s *session) {
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
		if a.reflag(l); l.contended() { // a request may wait at a budget that it has come under
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
	a.changed()
	if err := put(b, budgetOf(to)); err != nil {
		panic("arbiter: " + err.Error()) // a job's is above no other one, and no cap
	}
	a.dropShared(old)
}
