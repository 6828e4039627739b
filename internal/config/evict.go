package config

import (
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file checks the keys by which idle jobs make room (evict.*), which depend on each other. load.go checks each file with it.

// evictKeys are the keys of a section that say how its jobs make room.
var evictKeys = []string{"evict.how", "evict.suspend", "evict.resume", "evict.idle_after", "evict.min_resident", "evict.timeout", "evict.return"}

// checkEvict finds settings of a section with which no job could give its memory back, or take it again. e are the settings of the
// section's programs, those of [defaults] included. A section whose value could not be read has been reported already.
func (l *loader) checkEvict(d *draft, e rules.Evict) {
	first, own := d.firstEvictKey(), d.lines["evict.how"] != 0
	switch {
	case first == "", own && d.Evict.How == nil:
	case own && e.How == rules.EvictByUnit:
		l.checkEvictByUnit(d)
	case e.How == rules.EvictByHook:
		l.checkEvictByHook(d, e)
	case !own && e.How == rules.EvictNever && d.kind == sectionRule:
		l.mistake(d, first, `%s: has no effect without evict.how: add evict.how = "hook" or "unit", or remove this key`, first)
	}
}

// firstEvictKey returns the first key of evictKeys that a section has; "": it has none.
func (d *draft) firstEvictKey() (first string) {
	for _, key := range evictKeys {
		if d.lines[key] != 0 && (first == "" || d.lines[key] < d.lines[first]) {
			first = key
		}
	}
	return first
}

// checkEvictByUnit checks a section whose jobs give their memory back when systemd stops their service.
func (l *loader) checkEvictByUnit(d *draft) {
	const at = "evict.how"
	switch unit := d.Match.Unit; {
	case d.kind == sectionDefaults:
		l.mistake(d, at, `evict.how: "unit" cannot be set in [defaults], because it stops services: set it in a [[rule]] with match.unit`)
	case unit == "":
		l.mistake(d, at, `evict.how: "unit" needs match.unit, the service to stop, such as match.unit = "llama.service"`)
	case !strings.HasSuffix(unit, ".service"):
		l.mistake(d, at, `evict.how: "unit" stops services only: match.unit must end in .service, which %q does not`, unit)
	}
	for _, key := range []string{"evict.suspend", "evict.resume"} {
		if d.lines[key] != 0 {
			l.mistake(d, key, `%s: evict.how = "unit" runs no command: remove this key, or set evict.how = "hook"`, key)
		}
	}
}

// checkEvictByHook checks a section whose jobs give their memory back when a command asks them.
func (l *loader) checkEvictByHook(d *draft, e rules.Evict) {
	given := func(key string) string {
		if d.lines[key] == 0 { // [defaults] has it
			return d.firstEvictKey()
		}
		return key
	}
	if e.Suspend == "" && d.lines["evict.suspend"] == 0 {
		l.mistake(d, given("evict.how"), `evict.how: "hook" needs evict.suspend, the command that asks the program for its memory, such as %s`, exampleCommand)
	}
	if e.Resume == "" && d.lines["evict.resume"] == 0 && e.Returns() != rules.ReturnOnUse {
		l.mistake(d, given("evict.return"), `evict.return: %q needs evict.resume, the command that lets the program take its memory again; a program that does so when it is used has evict.return = "use"`, e.Return)
	}
}

// checkEvictions warns if no job is ever asked to make room although a section says how, or if a section says when and none says how. It
// warns of commands that the machine does not have.
func (l *loader) checkEvictions(m Machine) {
	never, evicts := l.config.Policy.EvictAfter == rules.NoTimeout, false
	for _, d := range slices.Concat(l.defaults, l.rules) {
		if d.Evict.How != nil && *d.Evict.How != rules.EvictNever {
			if evicts = true; never {
				l.warn(d, "evict.how", `evict.how: jobs make room only after gpuarb suspend, because evict.after in [defaults] is "max"; a time there, such as "5s", has waiting requests ask them`)
			}
		}
		for key, command := range map[string]*rules.Command{"evict.suspend": d.Evict.Suspend, "evict.resume": d.Evict.Resume} {
			if command != nil && m.Program != nil && !m.Program(command.Args()[0]) {
				l.warn(d, key, "%s: this machine has no program %s", key, command.Args()[0])
			}
		}
	}
	for _, d := range l.defaults {
		if d.lines["evict.after"] != 0 && !never && !evicts {
			l.warn(d, "evict.after", `evict.after: no job can be asked to make room, because no section has evict.how = "hook" or "unit"`)
		}
	}
}
