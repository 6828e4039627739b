package config

// This file finds settings that are allowed but probably wrong. `gpuarb config check` prints them.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Machine has the known facts about the machine of a configuration. A nil field is not known, and
// causes no warnings.
type Machine struct {
	Devices []rules.Device
	User    func(name string) bool // reports whether the user exists
	Group   func(name string) bool // reports whether the group exists
	Program func(path string) bool // reports whether the file exists and may be executed
}

// Check calls Load, and returns warnings about settings that are allowed but probably wrong, in the
// order of the files and lines.
func Check(path string, m Machine) (config *Config, warnings Mistakes, err error) {
	l := load(path)
	config, err = l.finish()
	if err != nil {
		return nil, nil, err
	}
	l.checkRules(m)
	l.checkDevices(m)
	l.checkEvictions(m)
	l.sort(l.warnings)
	return config, l.warnings, nil
}

// warn records a warning at the line of a key of a section.
func (l *loader) warn(d *draft, key, format string, args ...any) {
	l.warnings = append(l.warnings, Mistake{d.file, cmp.Or(d.lines[key], d.line), fmt.Sprintf(format, args...)})
}

// checkRules checks the users and groups that rules match, and the order of the rules.
func (l *loader) checkRules(m Machine) {
	all := l.config.Policy.Rules
	for i, d := range l.rules {
		for _, who := range []struct {
			key, what, pattern string
			known              func(string) bool
		}{{"match.user", "user", d.Match.User, m.User}, {"match.group", "group", d.Match.Group, m.Group}} {
			if who.known == nil || who.pattern == "" || strings.ContainsAny(who.pattern, `*?[\`) {
				continue
			}
			if _, err := strconv.ParseUint(who.pattern, 10, 32); err != nil && !who.known(who.pattern) {
				l.warn(d, who.key, "%s: there is no %s %q on this machine", who.key, who.what, who.pattern)
			}
		}
		for k := range i {
			if covers(all[k].Match, d.Match) {
				l.warn(d, "", "this rule is never used: %s, which comes first, matches %s", all[k].Name, all[k].Match)
				break
			}
		}
		l.checkMin(d, m)
		l.checkList(d, m)
	}
	for _, d := range l.defaults {
		l.checkMin(d, m)
		l.checkList(d, m)
	}
}

// checkList checks whether the machine has each device that a rule lists.
func (l *loader) checkList(d *draft, m Machine) {
	if d.Rule.Devices == nil || len(m.Devices) == 0 {
		return
	}
	for _, name := range d.Rule.Devices.Names() {
		only := rules.DeviceList(name)
		if !slices.ContainsFunc(m.Devices, func(dev rules.Device) bool { return dev.IsGPU() && only.Has(dev) }) {
			l.warn(d, "devices", "devices: this machine has no GPU %s: `gpuarb devices` lists those that it has", name)
		}
	}
}

// covers reports whether the first rule matches all programs that the second matches, as far as the
// patterns alone show that.
func covers(first, second rules.Match) bool {
	a, b := first.Fields(), second.Fields()
	for i := range a {
		if pattern := a[i][1]; strings.Trim(pattern, "*") != "" && pattern != b[i][1] {
			return false
		}
	}
	return true
}

// checkMin checks whether a reservation is larger than every device.
func (l *loader) checkMin(d *draft, m Machine) {
	if d.Min == nil || !d.Min.IsAbsolute() {
		return
	}
	var largest accounting.Bytes
	for _, dev := range m.Devices {
		if dev.IsGPU() { // only GPUs have reservations
			largest = max(largest, dev.Total)
		}
	}
	if largest > 0 && d.Min.Bytes > largest {
		l.warn(d, "memory.min", "memory.min of %s is more than a device has (%s): it can never be reserved", d.Min.Bytes.Human(), largest.Human())
	}
}

// checkDevices checks which devices the sections match, and what is left of them.
func (l *loader) checkDevices(m Machine) {
	taken := map[rules.Device]bool{} // devices that an earlier section matches
	for _, d := range l.devices {
		var meant []rules.Device
		for _, dev := range m.Devices {
			if d.device.Match.Matches(dev) {
				meant = append(meant, dev)
			}
		}
		if len(m.Devices) > 0 && len(meant) == 0 {
			l.warn(d, "", "there is no such device on this machine: `gpuarb devices` lists them")
		}
		before := 0
		for _, dev := range meant {
			if taken[dev] {
				before++
			}
			taken[dev] = true
		}
		if before > 0 && before == len(meant) {
			l.warn(d, "", "this block is never used: for each of its devices one that comes first counts")
		}
		for _, dev := range meant {
			if reserve := d.device.Reserve.Of(dev.Total); dev.Total > 0 && reserve >= dev.Total {
				l.warn(d, "reserve", "reserve of %s is all that %s has (%s): nothing is left for anybody", reserve.Human(), dev, dev.Total.Human())
				break
			}
		}
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
