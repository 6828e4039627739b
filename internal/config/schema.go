package config

// This file lists the sections and their keys. values.go reads the values; load.go reads sections
// with these keys, and String writes them.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxStreams bounds streams.max, far above the number of streams that a driver can create.
const maxStreams = 1 << 20

// maxPriority bounds priority in both directions. With the age of a request added, it stays far
// inside an integer.
const maxPriority = 1_000_000

// maxWaitAfter bounds wait_after: a program that asks more often after refusals drops no cache any more.
const maxWaitAfter = 16

// draft holds the values of a section while it is read or written. Keys of single sections are
// stored directly in config.
type draft struct {
	file  string
	line  int            // line of the section
	kind  string         // name of the section
	lines map[string]int // lines of the keys

	config     *Config
	rules.Rule // values of [defaults] or [[rule]]; its Name is empty
	device     rules.DeviceRule
}

// key is a key that a section may have.
type key struct {
	name  string
	bytes bool // a number without a unit is bytes
	// read checks a value and stores it. Its error says what is wrong with the value; the caller
	// puts the name of the key before it.
	read   func(d *draft, v value) error
	format func(d *draft) string // value as in a file; "": not set
}

// plainKey makes a key that always has a value, because a default exists.
func plainKey[T any](name string, k kind[T], of func(*draft) *T) key {
	read := func(d *draft, v value) (err error) {
		*of(d), err = k.read(v)
		return err
	}
	return key{name, k.bytes, read, func(d *draft) string { return k.format(*of(d)) }}
}

// optional makes a key that may be missing, which nil stands for.
func optional[T any](name string, k kind[T], of func(*draft) **T) key {
	read := func(d *draft, v value) error {
		given, err := k.read(v)
		if err == nil {
			*of(d) = &given
		}
		return err
	}
	format := func(d *draft) string {
		if given := *of(d); given != nil {
			return k.format(*given)
		}
		return ""
	}
	return key{name, k.bytes, read, format}
}

// hidden makes a key that String does not write, because other keys have its value.
func hidden(k key) key {
	k.format = func(*draft) string { return "" }
	return k
}

var (
	slotScope = words(rules.ScopeJob, rules.ScopeProcess, rules.ScopeThread)
	slotsMax  = plainKey("slots.max", slots, func(d *draft) *int { return &d.device.SlotsMax })

	limitKeys = []key{
		optional("memory.max", sizes, func(d *draft) **accounting.Size { return &d.Max }),
		optional("memory.min", boundedSizes, func(d *draft) **accounting.Size { return &d.Min }),
		optional("scope", words(rules.ScopeJob, rules.ScopeProcess, rules.ScopeUser, rules.ScopeCgroup, rules.ScopeRule),
			func(d *draft) **rules.Scope { return &d.Scope }),
		optional("streams.max", integers(1, maxStreams), func(d *draft) **int { return &d.StreamsMax }),
		optional("on_full", words(rules.OnFullDeny, rules.OnFullWait), func(d *draft) **rules.OnFull { return &d.OnFull }),
		optional("wait_timeout", durations(true), func(d *draft) **time.Duration { return &d.WaitTimeout }),
		optional("age_after", durations(true), func(d *draft) **time.Duration { return &d.AgeAfter }),
		optional("idle.warn", warnTimes, func(d *draft) **time.Duration { return &d.IdleWarn }),
		optional("age.warn", warnTimes, func(d *draft) **time.Duration { return &d.AgeWarn }),
		optional("wait_after", integers(0, maxWaitAfter), func(d *draft) **int { return &d.WaitAfter }),
		optional("priority", integers(-maxPriority, maxPriority), func(d *draft) **int { return &d.Priority }),
		optional("slots.scope", slotScope, func(d *draft) **rules.Scope { return &d.SlotScope }),
		optional("stream_reserve", amounts(boundedSizes), func(d *draft) **accounting.Bytes { return &d.StreamReserve }),
		optional("host.max", amounts(sizes), func(d *draft) **accounting.Bytes { return &d.HostMax }),
		optional("no_exports", booleans, func(d *draft) **bool { return &d.NoExports }),
		optional("devices", deviceLists, func(d *draft) **rules.DeviceList { return &d.Rule.Devices }),
		optional("evict.how", words(rules.EvictNever, rules.EvictByHook, rules.EvictByUnit), func(d *draft) **rules.EvictHow { return &d.Evict.How }),
		optional("evict.suspend", commands, func(d *draft) **rules.Command { return &d.Evict.Suspend }),
		optional("evict.resume", commands, func(d *draft) **rules.Command { return &d.Evict.Resume }),
		optional("evict.idle_after", evictTimes, func(d *draft) **time.Duration { return &d.Evict.IdleAfter }),
		optional("evict.min_resident", evictTimes, func(d *draft) **time.Duration { return &d.Evict.MinResident }),
		optional("evict.timeout", evictTimeouts, func(d *draft) **time.Duration { return &d.Evict.Timeout }),
		optional("evict.return", words(rules.ReturnNever, rules.ReturnOnRoom, rules.ReturnOnUse), func(d *draft) **rules.EvictReturn { return &d.Evict.Return }),
	}

	ruleKeys = slices.Concat([]key{
		plainKey("name", ruleNames, func(d *draft) *string { return &d.Key }),
		plainKey("match.user", patterns, func(d *draft) *string { return &d.Match.User }),
		plainKey("match.group", patterns, func(d *draft) *string { return &d.Match.Group }),
		plainKey("match.exe", patterns, func(d *draft) *string { return &d.Match.Exe }),
		plainKey("match.command", patterns, func(d *draft) *string { return &d.Match.Command }),
		plainKey("match.cgroup", patterns, func(d *draft) *string { return &d.Match.Cgroup }),
		plainKey("match.unit", patterns, func(d *draft) *string { return &d.Match.Unit }),
		plainKey("match.container", patterns, func(d *draft) *string { return &d.Match.Container }),
	}, limitKeys)

	defaultsKeys = append(slices.Clip(limitKeys),
		hidden(slotsMax), // String writes it in each [[device]]
		plainKey("on_loss", words(LossOpen, LossClosed), func(d *draft) *OnLoss { return &d.config.OnLoss }),
		plainKey("evict.after", durations(true), func(d *draft) *time.Duration { return &d.config.Policy.EvictAfter }),
		plainKey("deadlock_grace", durations(false), func(d *draft) *time.Duration { return &d.config.Policy.DeadlockGrace }),
		plainKey("driver_limits", booleans, func(d *draft) *bool { return &d.config.DriverLimits }),
		plainKey("charge_overhead", booleans, func(d *draft) *bool { return &d.config.Policy.ChargeOverhead }),
		plainKey("charge_unmanaged", booleans, func(d *draft) *bool { return &d.config.Policy.ChargeUnmanaged }),
		key{"context_reserve", boundedSizes.bytes, readContextReserve, spellContextReserve},
	)

	deviceKeys = []key{
		optional("match.index", integers(0, 1<<16), func(d *draft) **int { return &d.device.Match.Index }),
		plainKey("match.uuid", uuids, func(d *draft) *string { return &d.device.Match.UUID }),
		plainKey("match.pci", addresses, func(d *draft) *string { return &d.device.Match.PCI }),
		plainKey("match.vendor", words("nvidia", "amd", "intel", accounting.VendorCPU), func(d *draft) *string { return &d.device.Match.Vendor }),
		plainKey("memory", memory, func(d *draft) *accounting.Bytes { return &d.device.Memory }),
		plainKey("also", drivers, func(d *draft) *[]string { return &d.device.Also }),
		plainKey("reserve", boundedSizes, func(d *draft) *accounting.Size { return &d.device.Reserve }),
		slotsMax,
		plainKey("slots.scope", slotScope, func(d *draft) *rules.Scope { return &d.device.SlotScope }),
		optional("context_reserve", boundedSizes, func(d *draft) **accounting.Size { return &d.device.ContextReserve }),
	}
)

// readContextReserve reads context_reserve, the memory of one context. The key replaces ContextGuess,
// the estimate for devices on which no context has been measured yet.
func readContextReserve(d *draft, v value) (err error) {
	policy := &d.config.Policy
	policy.ContextReserve, err = boundedSizes.read(v)
	policy.ContextGuess = accounting.Size{}
	return err
}

func spellContextReserve(d *draft) string {
	if d.config.Policy.ContextGuess != (accounting.Size{}) {
		return ""
	}
	return boundedSizes.format(d.config.Policy.ContextReserve)
}

// table is a kind of section.
type table struct {
	name string // "": the top of the file
	many bool   // the section may occur several times
	keys []key
}

// The names of sections that other code needs.
const (
	sectionRoot     = ""
	sectionDefaults = "defaults"
	sectionRule     = "rule"
	sectionDevice   = "device"
	sectionHTTP     = "http"
)

// tables are all kinds of sections. The top of the file is the first.
var tables = []table{
	{sectionRoot, false, []key{
		plainKey("schema_version", versions, func(*draft) *int { return new(int) }),
		plainKey("history", words(HistoryOn, HistoryNone), func(d *draft) *HistoryKept { return &d.config.History.Kept }),
		plainKey("history_size", historySizes, func(d *draft) *accounting.Bytes { return &d.config.History.Size }),
		plainKey("history_age", historyAges, func(d *draft) *time.Duration { return &d.config.History.Age }),
	}},
	{sectionDefaults, false, defaultsKeys},
	{sectionRule, true, ruleKeys},
	{sectionDevice, true, deviceKeys},
	{sectionHTTP, false, []key{
		plainKey("listen", listens, func(d *draft) *Listen { return &d.config.HTTP.Listen }),
		plainKey("hosts", hosts, func(d *draft) *[]string { return &d.config.HTTP.Hosts }),
	}},
	{"privacy", false, []key{plainKey("commands", words(CommandsAll, CommandsOwn), func(d *draft) *Commands { return &d.config.Commands })}},
	{"metrics", false, []key{plainKey("jobs", booleans, func(d *draft) *bool { return &d.config.Metrics.Jobs })}},
	{"dcgm", false, []key{plainKey("job_mapping_dir", folders, func(d *draft) *string { return &d.config.DCGM.JobMappingDir })}},
}

// tableOf returns the table that a header names; nil: none.
func tableOf(name string) *table {
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == name })
	if i <= 0 {
		return nil
	}
	return &tables[i]
}

// header returns how the table is written.
func (t *table) header() string {
	switch {
	case t.name == sectionRoot:
		return "the top of the file"
	case t.many:
		return "[[" + t.name + "]]"
	}
	return "[" + t.name + "]"
}

// key returns a key of the table; false: the table has no key of that name.
func (t *table) key(name string) (key, bool) {
	i := slices.IndexFunc(t.keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return t.keys[i], true
}

func (t *table) keyNames() []string {
	names := make([]string, len(t.keys))
	for i, k := range t.keys {
		names[i] = k.name
	}
	slices.Sort(names)
	return names
}

// isParent reports whether name is a prefix of a key, as memory is of memory.max.
func (t *table) isParent(name string) bool {
	return slices.ContainsFunc(t.keys, func(k key) bool { return strings.HasPrefix(k.name, name+".") })
}

// knownTables lists the sections for messages.
func knownTables() string {
	var headers []string
	for _, t := range tables[1:] {
		headers = append(headers, t.header())
	}
	return AndList(headers)
}

// suspiciousBytes is a limit for missing units: users do not count more than this by single bytes,
// and every budget is larger.
const suspiciousBytes = 1 << 20

// missingUnit returns a warning for a number whose unit seems to be missing; "": no warning.
func missingUnit(k key, v value) string {
	n, err := strconv.ParseUint(v.text, 0, 64)
	if err != nil || v.kind != unstable.String && v.kind != unstable.Integer || n == 0 || n >= suspiciousBytes || !k.bytes {
		return ""
	}
	unit := "GiB"
	if n >= 256 {
		unit = "MiB"
	}
	return fmt.Sprintf("%s is %d bytes; did you mean \"%d%s\"?", k.name, n, n, unit)
}

// unknownKey says what to do about a key that the section does not have. The key may belong into
// another section, or be misspelled.
func (t *table) unknownKey(name string) string {
	var homes []string
	for _, other := range tables {
		if _, theirs := other.key(name); theirs {
			homes = append(homes, other.header())
		}
	}
	if len(homes) > 0 {
		return fmt.Sprintf("%s: cannot be set in %s; it belongs in %s", name, t.header(), strings.Join(homes, " or "))
	}
	if near := Near(name, t.keyNames()); len(near) > 0 {
		return fmt.Sprintf("unknown key %q in %s; did you mean %s?", name, t.header(), strings.Join(near, " or "))
	}
	return fmt.Sprintf("unknown key %q in %s; known are %s", name, t.header(), strings.Join(t.keyNames(), ", "))
}

// String returns the configuration as a file that Load reads back to an equal configuration. It
// contains every default, and rules and devices in their order.
func (c *Config) String() string {
	var b strings.Builder
	for _, file := range c.Files {
		fmt.Fprintf(&b, "# from %q\n", file)
	}
	if len(c.Files) == 0 {
		b.WriteString("# built-in defaults; no configuration file was read\n")
	}
	defaults := c.Policy.Defaults
	once := &draft{config: c, Rule: rules.Rule{Min: &defaults.Min, Max: &defaults.Max, Scope: &defaults.Scope,
		StreamsMax: &defaults.StreamsMax, OnFull: &defaults.OnFull, WaitTimeout: &defaults.WaitTimeout,
		WaitAfter: defaults.WaitAfter, AgeAfter: &defaults.AgeAfter, IdleWarn: &defaults.IdleWarn, AgeWarn: &defaults.AgeWarn,
		Priority: &defaults.Priority, SlotScope: &defaults.SlotScope,
		StreamReserve: &defaults.StreamReserve, HostMax: defaults.HostMax, NoExports: &defaults.NoExports, Devices: &defaults.Devices, Evict: evictDefaults(&defaults.Evict)}}
	for _, t := range tables {
		switch {
		case t.many, t.name == sectionHTTP && c.HTTP.Listen == "" && len(c.HTTP.Hosts) == 0:
		case t.name == sectionRoot:
			b.WriteString(t.lines(once))
		default:
			b.WriteString("\n" + t.header() + "\n" + t.lines(once))
		}
	}
	for _, rule := range c.Policy.Devices {
		b.WriteString("\n[[device]]\n" + tableOf(sectionDevice).lines(&draft{device: rule}))
	}
	for _, rule := range c.Policy.Rules {
		b.WriteString("\n[[rule]]\n" + tableOf(sectionRule).lines(&draft{Rule: rule}))
	}
	return b.String()
}

// evictDefaults returns the evict keys of [defaults]. Those without a value are not written.
func evictDefaults(e *rules.Evict) (r rules.EvictRule) {
	r = rules.EvictRule{How: &e.How, IdleAfter: &e.IdleAfter, MinResident: &e.MinResident, Timeout: &e.Timeout, Return: &e.Return}
	if e.Suspend != "" {
		r.Suspend = &e.Suspend
	}
	if e.Resume != "" {
		r.Resume = &e.Resume
	}
	return r
}

// lines writes the keys of a table that are set.
func (t *table) lines(d *draft) string {
	var b strings.Builder
	for _, k := range t.keys {
		if text := k.format(d); text != "" {
			fmt.Fprintf(&b, "%s = %s\n", k.name, text)
		}
	}
	return b.String()
}
