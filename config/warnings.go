package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
)

// Machine is what is known of the machine that a configuration is for. What is nil is not
// known, and nothing is said of it.
type Machine struct {
	Devices []rules.Device
	User    func(name string) bool // tells whether there is such a user
	Group   func(name string) bool // and such a group
}

// Check is Load, and what is allowed in the files and cannot be meant: of each the place
// and what is odd about it, in the order of the files and lines.
func Check(path string, m Machine) (config *Config, warnings Mistakes, err error) {
	l := load(path)
	config, err = l.finish()
	if err != nil {
		return nil, nil, err
	}
	l.checkRules(m)
	l.checkDevices(m)
	l.sort(l.warnings)
	return config, l.warnings, nil
}

// warn notes that something in a section cannot be meant, at the line of a key.
func (l *loader) warn(d *draft, key, format string, args ...any) {
	l.warnings = append(l.warnings, Mistake{d.file, cmp.Or(d.lines[key], d.line), fmt.Sprintf(format, args...)})
}

// checkRules looks at whom the rules are for.
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
	}
	for _, d := range l.defaults {
		l.checkMin(d, m)
	}
}

// covers tells whether one rule matches everybody whom another one matches, as far as that
// can be seen without knowing them: it asks for nothing else.
func covers(first, second rules.Match) bool {
	a, b := first.Fields(), second.Fields()
	for i := range a {
		if pattern := a[i][1]; strings.Trim(pattern, "*") != "" && pattern != b[i][1] {
			return false
		}
	}
	return true
}

// checkMin looks whether a reservation is more than any device has.
func (l *loader) checkMin(d *draft, m Machine) {
	if d.Min == nil || !d.Min.IsAbsolute() {
		return
	}
	var largest accounting.Bytes
	for _, dev := range m.Devices {
		if dev.IsGPU() { // nothing is reserved elsewhere
			largest = max(largest, dev.Total)
		}
	}
	if largest > 0 && d.Min.Bytes > largest {
		l.warn(d, "memory.min", "memory.min of %s is more than a device has (%s): it can never be reserved", d.Min.Bytes.Human(), largest.Human())
	}
}

// checkDevices looks at which devices are meant, and what is left of them.
func (l *loader) checkDevices(m Machine) {
	taken := map[rules.Device]bool{} // that a block before counts for
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
