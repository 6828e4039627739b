package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/pelletier/go-toml/v2/unstable"
)

// SchemaVersion is the schema_version that this version of gpuarb reads.
const SchemaVersion = 1

// maxStreams bounds streams.max. It is far above what a driver can create.
const maxStreams = 1 << 20

// draft collects what one section sets. A nil pointer is a key that is not there.
type draft struct {
	file  string
	line  int            // of the section
	lines map[string]int // of each key

	version *int
	min     *arbiter.Size
	max     *arbiter.Size
	scope   *arbiter.Scope
	streams *int
	onLoss  *OnLoss
	match   arbiter.Match

	index   *int
	uuid    string
	pci     string
	vendor  string
	reserve *arbiter.Size
}

// errLater is the answer to a value that is right, but that this version would not honour.
var errLater = errors.New("is not supported yet")

// reader checks one value and stores it in the draft. Its error says what is wrong
// with the value, and is put after the key's name.
type reader func(d *draft, v value) error

// The keys of each kind of section. Keys that are in the documents and that this
// version does not carry out are here too, each with the value that it does have:
// anything else is answered with errLater, never ignored.
var (
	rootKeys = map[string]reader{"schema_version": readVersion}

	limitKeys = map[string]reader{
		"memory.max": func(d *draft, v value) error { return readSize(&d.max, v) },
		"memory.min": func(d *draft, v value) error { return readMin(&d.min, v) },
		"scope":      readScope,
		"streams.max": func(d *draft, v value) error {
			return readInt(&d.streams, v, 1, maxStreams)
		},
		"on_full":         words("deny", "wait"),
		"wait_timeout":    laterDuration,
		"wait_after":      laterInt(0),
		"age_after":       laterDuration,
		"deadlock_grace":  laterDuration,
		"priority":        laterInt(0),
		"slots.scope":     words("job", "process", "thread"),
		"stream_reserve":  laterSize(arbiter.Size{}),
		"charge_overhead": laterBool,
		"context_reserve": laterSize(arbiter.Size{Max: true}), // no value of it is today's
	}

	defaultsKeys = with(limitKeys, map[string]reader{"on_loss": readOnLoss, "slots.max": readSlots})

	ruleKeys = with(limitKeys, map[string]reader{
		"on_loss":         laterOnLoss,
		"slots.max":       readSlots,
		"match.user":      func(d *draft, v value) error { return readGlob(&d.match.User, v) },
		"match.group":     func(d *draft, v value) error { return readGlob(&d.match.Group, v) },
		"match.exe":       func(d *draft, v value) error { return readGlob(&d.match.Exe, v) },
		"match.command":   func(d *draft, v value) error { return readGlob(&d.match.Command, v) },
		"match.cgroup":    func(d *draft, v value) error { return readGlob(&d.match.Cgroup, v) },
		"match.unit":      func(d *draft, v value) error { return readGlob(&d.match.Unit, v) },
		"match.container": func(d *draft, v value) error { return readGlob(&d.match.Container, v) },
	})

	deviceKeys = map[string]reader{
		"match.index":     func(d *draft, v value) error { return readInt(&d.index, v, 0, 1<<16) },
		"match.uuid":      readUUID,
		"match.pci":       readPCI,
		"match.vendor":    readVendor,
		"reserve":         func(d *draft, v value) error { return readMin(&d.reserve, v) },
		"slots.max":       readSlots,
		"slots.scope":     words("job", "process", "thread"),
		"context_reserve": laterSize(arbiter.Size{Max: true}),
	}
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
				doc.mistake(set.line, "unknown key %q in %s; known are %s", set.key, where, keyNames(keys))
			}
			continue
		}
		d.lines[set.key] = set.line
		err := read(d, set.value)
		if errors.Is(err, errLater) {
			doc.mistake(set.line, "%s = %s %v", set.key, set.value.shown(), err)
		} else if err != nil {
			doc.mistake(set.line, "%s: %v", set.key, err)
		}
	}
	return d
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
