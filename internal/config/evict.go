package config

import (
	"strings"

	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// This file checks the keys by which idle jobs make room (evict.*), which depend on each other. load.go calls it for each section, and warnings.go finds what is allowed and hardly meant.

// evictKeys are the keys of a section that say how its jobs make room.
var evictKeys = []string{"evict.how", "evict.suspend", "evict.resume", "evict.idle_after", "evict.min_resident", "evict.timeout", "evict.return"}

// checkEvict reports settings of a section with which no job could give its memory back, or take it again. e are the settings of the
// section's programs, those of [defaults] included. A section whose value could not be read has been reported already.
func (d *draft) checkEvict(e rules.Evict, mistake func(key, format string, args ...any)) {
	first, own := d.firstEvictKey(), d.lines["evict.how"] != 0
	switch {
	case first == "", own && d.Evict.How == nil:
	case own && e.How == rules.EvictByUnit:
		d.checkEvictByUnit(mistake)
	case e.How == rules.EvictByHook:
		d.checkEvictByHook(e, mistake)
	case !own && e.How == rules.EvictNever && d.kind == sectionRule:
		mistake(first, `%s: has no effect without evict.how: add evict.how = "hook" or "unit", or remove this key`, first)
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
func (d *draft) checkEvictByUnit(mistake func(key, format string, args ...any)) {
	const at = "evict.how"
	switch unit := d.Match.Unit; {
	case d.kind == sectionDefaults:
		mistake(at, `evict.how: "unit" cannot be set in [defaults], because it stops services: set it in a [[rule]] with match.unit`)
	case unit == "":
		mistake(at, `evict.how: "unit" needs match.unit, the service to stop, such as match.unit = "llama.service"`)
	case !strings.HasSuffix(unit, ".service"):
		mistake(at, `evict.how: "unit" stops services only: match.unit must end in .service, which %q does not`, unit)
	}
	for _, key := range []string{"evict.suspend", "evict.resume"} {
		if d.lines[key] != 0 {
			mistake(key, `%s: evict.how = "unit" runs no command: remove this key, or set evict.how = "hook"`, key)
		}
	}
}

// checkEvictByHook checks a section whose jobs give their memory back when a command asks them.
func (d *draft) checkEvictByHook(e rules.Evict, mistake func(key, format string, args ...any)) {
	given := func(key string) string {
		if d.lines[key] == 0 { // [defaults] has it
			return d.firstEvictKey()
		}
		return key
	}
	if e.Suspend == "" && d.lines["evict.suspend"] == 0 {
		mistake(given("evict.how"), `evict.how: "hook" needs evict.suspend, the command that asks the program for its memory, such as %s`, exampleCommand)
	}
	if e.Resume == "" && d.lines["evict.resume"] == 0 && e.Returns() != rules.ReturnOnUse {
		mistake(given("evict.return"), `evict.return: %q needs evict.resume, the command that lets the program take its memory again; a program that does so when it is used has evict.return = "use"`, e.Return)
	}
}
