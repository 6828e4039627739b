package main

// This file finds the limit that holds instead of one that was just set and has no effect, because
// another limit is lower. limit.go calls it.

import (
	"fmt"
	"os/user"
	"strconv"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/gpuarb/gpuarb/internal/config"
	"github.com/gpuarb/gpuarb/internal/figures"
	"github.com/gpuarb/gpuarb/internal/report"
	"github.com/gpuarb/gpuarb/ipc"
)

// sayNoEffect says for each device on which a memory.max that was just set has no effect which limit
// is in force there.
func (a *app) sayNoEffect(s figures.Snapshot, limits []report.Limit, w *limitTarget) {
	seen := map[report.Index]bool{}
	for _, own := range limits { // the target's own limit is the first of each device
		if own.Name != "memory.max" || seen[own.Device] {
			continue
		}
		if seen[own.Device] = true; own.Value == nil {
			continue
		}
		set, device := accounting.Bytes(*own.Value), s.Called(int(own.Device))
		if other := lowerLimit(limits, own); other != nil {
			a.say("memory.max of %s on %s has no effect: %s is in force, by %s", set.Human(), device, accounting.Bytes(*other.Value).Human(), report.Escape(*other.By))
		} else if w.kind == ipc.LimitUser {
			if text := ruleOfUser(s, uint32(w.request.ID), int(own.Device), set); text != "" {
				a.say("memory.max of %s on %s %s", set.Human(), device, text)
			}
		}
	}
}

// lowerLimit returns the limit that is in force instead of the given one; nil: the given one is in
// force.
func lowerLimit(limits []report.Limit, own report.Limit) *report.Limit {
	for i := range limits {
		if l := &limits[i]; l.Device == own.Device && l.Name == own.Name && l.InForce && !own.InForce && l.By != nil {
			return l
		}
	}
	return nil
}

// ruleOfUser says why a limit for all programs of a user has no effect beside the rule of the user's
// programs; "": it has an effect, or the programs are under several rules.
func ruleOfUser(s figures.Snapshot, uid uint32, device int, set accounting.Bytes) string {
	loaded, err := config.Parse("the configuration in force", []byte(s.Config.Text))
	if err != nil {
		return "" // the daemon is of another version
	}
	policy := loaded.Policy.InForce(nil)
	rule := policy.For(processOf(uid))
	var most accounting.Bytes
	var by string
	for i, t := range policy.All() {
		if t != rule || i >= len(s.Rules) {
			continue
		}
		for _, j := range s.Jobs {
			if j.UID == uid && j.Rule != s.Rules[i].Title {
				return ""
			}
		}
		for _, d := range s.Rules[i].Devices {
			if d.Device == device {
				most, by = d.Max, d.MaxBy
			}
		}
	}
	switch {
	case by == "" || most >= set:
		return ""
	case rule.Scope == rules.ScopeJob, rule.Scope == rules.ScopeProcess:
		return fmt.Sprintf("is for all of the user's programs together: each %s has %s at most, by %s", rule.Scope, most.Human(), report.Escape(by))
	}
	return fmt.Sprintf("has no effect: %s is in force, by %s", most.Human(), report.Escape(by))
}

// processOf returns what rules can know of any program of a user.
func processOf(uid uint32) rules.Process {
	p := rules.Process{UID: uid, User: strconv.FormatUint(uint64(uid), 10)}
	known, err := user.LookupId(p.User)
	if err != nil {
		return p
	}
	p.User = known.Username
	if ids, err := known.GroupIds(); err == nil {
		for _, id := range ids {
			p.Groups = append(p.Groups, id)
			if g, err := user.LookupGroupId(id); err == nil {
				p.Groups = append(p.Groups, g.Name)
			}
		}
	}
	return p
}
