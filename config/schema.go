package config

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

// maxStreams bounds streams.max. It is far above what a driver can create.
const maxStreams = 1 << 20

// maxPriority bounds priority, both ways: with age it stays far inside an integer.
const maxPriority = 1_000_000

// draft is where the keys of one section are read to, and spelled from. What there is once is the configuration's own.
type draft struct {
	file  string
	line  int            // of the section
	lines map[string]int // of each key

	config     *Config
	rules.Rule // of [defaults] and [[rule]]: what it gives to those that it matches; without a name for messages
	device     rules.DeviceRule
}

// key is one that a section may have.
type key struct {
	name  string
	bytes bool // a value without a unit is bytes
	// read checks a value and stores it. Its error says what is wrong with the value, and is put after the key's name.
	read  func(d *draft, v value) error
	spell func(d *draft) string // as in a file; "": it is not said
}

// always makes a key that has a value, said or not.
func always[T any](name string, k kind[T], of func(*draft) *T) key {
	read := func(d *draft, v value) (err error) {
		*of(d), err = k.read(v)
		return err
	}
	return key{name, k.bytes, read, func(d *draft) string { return k.spell(*of(d)) }}
}

// optional makes a key that need not be said: nil stands for that.
func optional[T any](name string, k kind[T], of func(*draft) **T) key {
	read := func(d *draft, v value) error {
		given, err := k.read(v)
		if err == nil {
			*of(d) = &given
		}
		return err
	}
	spell := func(d *draft) string {
		if given := *of(d); given != nil {
			return k.spell(*given)
		}
		return ""
	}
	return key{name, k.bytes, read, spell}
}

// unsaid is a key that other keys are spelled in place of.
func unsaid(k key) key {
	k.spell = func(*draft) string { return "" }
	return k
}

var (
	slotScope = words(rules.ScopeJob, rules.ScopeProcess, rules.ScopeThread)
	slotsMax  = always("slots.max", slots, func(d *draft) *int { return &d.device.SlotsMax })

	limitKeys = []key{
		optional("memory.max", sizes, func(d *draft) **accounting.Size { return &d.Max }),
		optional("memory.min", ends, func(d *draft) **accounting.Size { return &d.Min }),
		optional("scope", words(rules.ScopeJob, rules.ScopeProcess, rules.ScopeUser, rules.ScopeCgroup, rules.ScopeRule),
			func(d *draft) **rules.Scope { return &d.Scope }),
		optional("streams.max", integers(1, maxStreams), func(d *draft) **int { return &d.StreamsMax }),
		optional("on_full", words(rules.OnFullDeny, rules.OnFullWait), func(d *draft) **rules.OnFull { return &d.OnFull }),
		optional("wait_timeout", durations(true), func(d *draft) **time.Duration { return &d.WaitTimeout }),
		optional("age_after", durations(true), func(d *draft) **time.Duration { return &d.AgeAfter }),
		optional("wait_after", integers(0, 1), func(d *draft) **int { return &d.WaitAfter }),
		optional("priority", integers(-maxPriority, maxPriority), func(d *draft) **int { return &d.Priority }),
		optional("slots.scope", slotScope, func(d *draft) **rules.Scope { return &d.SlotScope }),
		optional("stream_reserve", amounts(ends), func(d *draft) **accounting.Bytes { return &d.StreamReserve }),
		optional("host.max", amounts(sizes), func(d *draft) **accounting.Bytes { return &d.HostMax }),
		optional("no_exports", booleans, func(d *draft) **bool { return &d.NoExports }),
	}

	ruleKeys = slices.Concat([]key{
		always("name", ruleNames, func(d *draft) *string { return &d.Key }),
		always("match.user", patterns, func(d *draft) *string { return &d.Match.User }),
		always("match.group", patterns, func(d *draft) *string { return &d.Match.Group }),
		always("match.exe", patterns, func(d *draft) *string { return &d.Match.Exe }),
		always("match.command", patterns, func(d *draft) *string { return &d.Match.Command }),
		always("match.cgroup", patterns, func(d *draft) *string { return &d.Match.Cgroup }),
		always("match.unit", patterns, func(d *draft) *string { return &d.Match.Unit }),
		always("match.container", patterns, func(d *draft) *string { return &d.Match.Container }),
	}, limitKeys)

	defaultsKeys = append(slices.Clip(limitKeys),
		unsaid(slotsMax), // each [[device]] has it
		always("on_loss", words(LossOpen, LossClosed), func(d *draft) *OnLoss { return &d.config.OnLoss }),
		always("deadlock_grace", durations(false), func(d *draft) *time.Duration { return &d.config.Policy.DeadlockGrace }),
		always("charge_overhead", booleans, func(d *draft) *bool { return &d.config.Policy.ChargeOverhead }),
		key{"context_reserve", ends.bytes, readContextReserve, spellContextReserve},
	)

	deviceKeys = []key{
		optional("match.index", integers(0, 1<<16), func(d *draft) **int { return &d.device.Match.Index }),
		always("match.uuid", uuids, func(d *draft) *string { return &d.device.Match.UUID }),
		always("match.pci", addresses, func(d *draft) *string { return &d.device.Match.PCI }),
		always("match.vendor", words("nvidia", "amd", "intel", accounting.VendorCPU), func(d *draft) *string { return &d.device.Match.Vendor }),
		always("memory", memory, func(d *draft) *accounting.Bytes { return &d.device.Memory }),
		always("also", drivers, func(d *draft) *[]string { return &d.device.Also }),
		always("reserve", ends, func(d *draft) *accounting.Size { return &d.device.Reserve }),
		slotsMax,
		always("slots.scope", slotScope, func(d *draft) *rules.Scope { return &d.device.SlotScope }),
		optional("context_reserve", ends, func(d *draft) **accounting.Size { return &d.device.ContextReserve }),
	}
)

// readContextReserve reads what a context takes; else a reservation goes by the guess.
func readContextReserve(d *draft, v value) (err error) {
	policy := &d.config.Policy
	policy.ContextReserve, err = ends.read(v)
	policy.ContextGuess = accounting.Size{}
	return err
}

func spellContextReserve(d *draft) string {
	if d.config.Policy.ContextGuess != (accounting.Size{}) {
		return ""
	}
	return ends.spell(d.config.Policy.ContextReserve)
}

// table is a kind of section that a file may have.
type table struct {
	name string // "": the top of the file
	many bool   // there may be several
	keys []key
}

// The sections that are known by their names.
const (
	sectionRoot     = ""
	sectionDefaults = "defaults"
	sectionRule     = "rule"
	sectionDevice   = "device"
	sectionHTTP     = "http"
)

// tables are all that there are; the top of the file comes first.
var tables = []table{
	{sectionRoot, false, []key{always("schema_version", versions, func(*draft) *int { return new(int) })}},
	{sectionDefaults, false, defaultsKeys},
	{sectionRule, true, ruleKeys},
	{sectionDevice, true, deviceKeys},
	{sectionHTTP, false, []key{
		always("listen", listens, func(d *draft) *Listen { return &d.config.HTTP.Listen }),
		always("hosts", hosts, func(d *draft) *[]string { return &d.config.HTTP.Hosts }),
	}},
	{"privacy", false, []key{always("commands", words(CommandsAll, CommandsOwn), func(d *draft) *Commands { return &d.config.Commands })}},
	{"metrics", false, []key{always("jobs", booleans, func(d *draft) *bool { return &d.config.Metrics.Jobs })}},
	{"dcgm", false, []key{always("job_mapping_dir", folders, func(d *draft) *string { return &d.config.DCGM.JobMappingDir })}},
}

// tableOf is the table that a header names; nil: there is none.
func tableOf(name string) *table {
	i := slices.IndexFunc(tables, func(t table) bool { return t.name == name })
	if i <= 0 {
		return nil
	}
	return &tables[i]
}

// header is how the table is written.
func (t *table) header() string {
	switch {
	case t.name == sectionRoot:
		return "the top of the file"
	case t.many:
		return "[[" + t.name + "]]"
	}
	return "[" + t.name + "]"
}

// key returns a key of the table; false: it has none of that name.
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

// isParent says whether a name is that of a table that holds one of the keys, as memory holds memory.max.
func (t *table) isParent(name string) bool {
	return slices.ContainsFunc(t.keys, func(k key) bool { return strings.HasPrefix(k.name, name+".") })
}

// knownTables is for messages.
func knownTables() string {
	var headers []string
	for _, t := range tables[1:] {
		headers = append(headers, t.header())
	}
	return AndList(headers)
}

// fewBytes is more than anybody counts by single bytes, and less than any budget.
const fewBytes = 1 << 20

// forgotUnit tells of a number without a unit that looks as if one was meant; "" where none does.
func forgotUnit(k key, v value) string {
	n, err := strconv.ParseUint(v.text, 0, 64)
	if err != nil || v.kind != unstable.String && v.kind != unstable.Integer || n == 0 || n >= fewBytes || !k.bytes {
		return ""
	}
	unit := "GiB"
	if n >= 256 {
		unit = "MiB"
	}
	return fmt.Sprintf("%s is %d bytes; did you mean \"%d%s\"?", k.name, n, n, unit)
}

// unknownKey says what is to be done about a key that means nothing where it stands: it is
// another section's, or much like one that does mean something there.
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

// String spells the configuration in force as a file that Load reads back to the
// same: every default included, rules and devices in their order.
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
		WaitAfter: &defaults.WaitAfter, AgeAfter: &defaults.AgeAfter, Priority: &defaults.Priority, SlotScope: &defaults.SlotScope,
		StreamReserve: &defaults.StreamReserve, HostMax: defaults.HostMax, NoExports: &defaults.NoExports}}
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

// lines spells the keys of a table that are said.
func (t *table) lines(d *draft) string {
	var b strings.Builder
	for _, k := range t.keys {
		if text := k.spell(d); text != "" {
			fmt.Fprintf(&b, "%s = %s\n", k.name, text)
		}
	}
	return b.String()
}
