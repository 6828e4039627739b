package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/pelletier/go-toml/v2/unstable"
)

// SchemaVersion is the schema_version that this version of gpuarb reads.
const SchemaVersion = 1

// maxStreams bounds streams.max. It is far above what a driver can create.
const maxStreams = 1 << 20

// maxSlots bounds slots.max, likewise far above what there can be.
const maxSlots = 1 << 20

// maxPriority bounds priority, both ways: with age it stays far inside an integer.
const maxPriority = 1_000_000

// draft collects what one section sets. A nil pointer is a key that is not there.
type draft struct {
	file  string
	line  int            // of the section
	lines map[string]int // of each key

	rules.Rule // what it gives to those that it matches; without a name for messages
	device     rules.DeviceMatch

	version        *int
	onLoss         *OnLoss
	slots          *int // 0: no limit
	ageAfter       *time.Duration
	grace          *time.Duration
	chargeOverhead *bool
	contextReserve *accounting.Size
	reserve        *accounting.Size
	memory         *accounting.Bytes
	also           []string
	listen         *Listen
	hosts          []string
	commands       *Commands
	jobs           *bool
	jobMappingDir  *string
}

// reader checks one value and stores it in the draft. Its error says what is wrong
// with the value, and is put after the key's name.
type reader func(d *draft, v value) error

// The keys of each kind of section.
var (
	rootKeys = map[string]reader{"schema_version": readVersion}

	limitKeys = map[string]reader{
		"memory.max": func(d *draft, v value) error { return readSize(&d.Max, v) },
		"memory.min": func(d *draft, v value) error { return readMin(&d.Min, v) },
		"scope": func(d *draft, v value) error {
			return readWord(&d.Scope, v, rules.ScopeJob, rules.ScopeProcess, rules.ScopeUser, rules.ScopeCgroup, rules.ScopeRule)
		},
		"streams.max":    func(d *draft, v value) error { return readInt(&d.StreamsMax, v, 1, maxStreams) },
		"on_full":        func(d *draft, v value) error { return readWord(&d.OnFull, v, rules.OnFullDeny, rules.OnFullWait) },
		"wait_timeout":   func(d *draft, v value) error { return readDuration(&d.WaitTimeout, v, true) },
		"wait_after":     func(d *draft, v value) error { return readInt(&d.WaitAfter, v, 0, 1) },
		"priority":       func(d *draft, v value) error { return readInt(&d.Priority, v, -maxPriority, maxPriority) },
		"slots.scope":    readSlotScope,
		"stream_reserve": func(d *draft, v value) error { return readBytes(&d.StreamReserve, v, false) },
		"host.max":       func(d *draft, v value) error { return readBytes(&d.HostMax, v, true) },
	}

	defaultsKeys = with(limitKeys, map[string]reader{
		"on_loss":         func(d *draft, v value) error { return readWord(&d.onLoss, v, LossOpen, LossClosed) },
		"slots.max":       readSlots,
		"age_after":       func(d *draft, v value) error { return readDuration(&d.ageAfter, v, false) },
		"deadlock_grace":  func(d *draft, v value) error { return readDuration(&d.grace, v, false) },
		"charge_overhead": readChargeOverhead,
		"context_reserve": func(d *draft, v value) error { return readMin(&d.contextReserve, v) },
	})

	ruleKeys = with(limitKeys, map[string]reader{
		"name":            readName,
		"match.user":      func(d *draft, v value) error { return readGlob(&d.Match.User, v) },
		"match.group":     func(d *draft, v value) error { return readGlob(&d.Match.Group, v) },
		"match.exe":       func(d *draft, v value) error { return readGlob(&d.Match.Exe, v) },
		"match.command":   func(d *draft, v value) error { return readGlob(&d.Match.Command, v) },
		"match.cgroup":    func(d *draft, v value) error { return readGlob(&d.Match.Cgroup, v) },
		"match.unit":      func(d *draft, v value) error { return readGlob(&d.Match.Unit, v) },
		"match.container": func(d *draft, v value) error { return readGlob(&d.Match.Container, v) },
	})

	deviceKeys = map[string]reader{
		"match.index":     func(d *draft, v value) error { return readInt(&d.device.Index, v, 0, 1<<16) },
		"match.uuid":      readUUID,
		"match.pci":       readPCI,
		"match.vendor":    readVendor,
		"memory":          readMemory,
		"also":            readAlso,
		"reserve":         func(d *draft, v value) error { return readMin(&d.reserve, v) },
		"slots.max":       readSlots,
		"slots.scope":     readSlotScope,
		"context_reserve": func(d *draft, v value) error { return readMin(&d.contextReserve, v) },
	}

	httpKeys = map[string]reader{"listen": readListen, "hosts": readHosts}

	privacyKeys = map[string]reader{
		"commands": func(d *draft, v value) error { return readWord(&d.commands, v, CommandsAll, CommandsOwn) },
	}

	metricsKeys = map[string]reader{"jobs": readJobs}

	dcgmKeys = map[string]reader{"job_mapping_dir": readJobMappingDir}
)

func with(base, more map[string]reader) map[string]reader {
	all := maps.Clone(base)
	maps.Copy(all, more)
	return all
}

// keysOf returns the keys of a section, and how its header is written.
func keysOf(section string) (map[string]reader, string) {
	switch section {
	case sectionDefaults:
		return defaultsKeys, "[defaults]"
	case sectionRule:
		return ruleKeys, "[[rule]]"
	case sectionDevice:
		return deviceKeys, "[[device]]"
	case sectionHTTP:
		return httpKeys, "[http]"
	case sectionPrivacy:
		return privacyKeys, "[privacy]"
	case sectionMetrics:
		return metricsKeys, "[metrics]"
	case sectionDCGM:
		return dcgmKeys, "[dcgm]"
	}
	return rootKeys, "the top of the file"
}

// read turns a section into a draft; what is wrong goes to doc's mistakes.
func (sec *section) read(doc *document) *draft {
	d := &draft{file: doc.file, line: sec.line, lines: map[string]int{}}
	keys, where := keysOf(sec.name)
	for _, set := range sec.settings {
		read, known := keys[set.key]
		if !known {
			if set.value.kind != unstable.InlineTable || !isParent(keys, set.key) {
				doc.mistake(set.line, "%s", unknownKey(set.key, where, keys))
			}
			continue
		}
		d.lines[set.key] = set.line
		if err := read(d, set.value); err != nil {
			doc.mistake(set.line, "%s: %v", set.key, err)
		} else if text := forgotUnit(set.key, set.value); text != "" {
			doc.warnings = append(doc.warnings, Mistake{doc.file, set.line, text})
		}
	}
	return d
}

// unknownKey says what is to be done about a key that means nothing where it stands: it is
// another section's, or much like one that does mean something there.
func unknownKey(key, where string, keys map[string]reader) string {
	var homes []string
	for _, section := range []string{sectionRoot, sectionDefaults, sectionRule, sectionDevice, sectionHTTP, sectionPrivacy, sectionMetrics, sectionDCGM} {
		if theirs, name := keysOf(section); theirs[key] != nil {
			homes = append(homes, name)
		}
	}
	if len(homes) > 0 {
		return fmt.Sprintf("%s: cannot be set in %s; it belongs in %s", key, where, strings.Join(homes, " or "))
	}
	if near := Near(key, slices.Collect(maps.Keys(keys))); len(near) > 0 {
		return fmt.Sprintf("unknown key %q in %s; did you mean %s?", key, where, strings.Join(near, " or "))
	}
	return fmt.Sprintf("unknown key %q in %s; known are %s", key, where, keyNames(keys))
}

func keyNames(keys map[string]reader) string {
	return strings.Join(slices.Sorted(maps.Keys(keys)), ", ")
}

// isParent says whether key is the table that holds one of keys, as memory holds memory.max.
func isParent(keys map[string]reader, key string) bool {
	for known := range keys {
		if strings.HasPrefix(known, key+".") {
			return true
		}
	}
	return false
}

// shown spells a value for a message, as it stands in the file or near it.
func (v value) shown() string {
	switch v.kind {
	case unstable.String:
		return strconv.Quote(v.text)
	case unstable.InlineTable:
		return "{…}"
	case unstable.Array:
		return "[…]"
	}
	return v.text
}

func (v value) wrongType(want string) error {
	return fmt.Errorf("must be %s, not %s", want, v.shown())
}
