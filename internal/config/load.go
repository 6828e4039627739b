package config

// This file reads the files, merges their sections into a Config, and collects mistakes.
// document.go parses a file; warnings.go adds warnings.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/pelletier/go-toml/v2/unstable"
)

// dropInFolder is the folder of further files, beside the main file.
const dropInFolder = "conf.d"

// maxFile bounds a file, in bytes, so that a wrong path (a log, a device) gives a message.
const maxFile = 1 << 20

// loader merges files into a Config.
type loader struct {
	config   *Config
	mistakes Mistakes
	warnings Mistakes
	defaults []*draft // [defaults] sections of the files
	rules    []*draft // one for each of config.Policy.Rules
	devices  []*draft // one for each of config.Policy.Devices
	slots    int      // slots.max of [defaults]; 0: no limit
}

func newLoader() *loader { return &loader{config: Defaults()} }

func (l *loader) unreadable(name string, err error) {
	var at *fs.PathError
	if errors.As(err, &at) { // the text of a PathError begins with the path
		err = at.Err // without the path, because Mistake.File has it
	}
	l.mistakes = append(l.mistakes, Mistake{File: name, Reason: fmt.Sprintf("cannot be read: %v", err)})
}

// Load reads the file at path and the conf.d/*.toml beside it. If path is "", it reads DefaultPath
// and its conf.d; that file need not exist. A file that path names must exist. The error is always
// Mistakes: it lists every mistake of every file, and files that cannot be read.
func Load(path string) (*Config, error) { return load(path).finish() }

// Parse reads a complete configuration from the text of a file with that name. The error is always
// Mistakes.
func Parse(name string, text []byte) (*Config, error) {
	l := newLoader()
	l.file(name, text, nil, true)
	return l.finish()
}

// load reads the files of Load.
func load(path string) *loader {
	named := path != ""
	if !named {
		path = DefaultPath
	}
	loader := newLoader()
	for _, file := range loader.paths(path, named) {
		data, err := readFile(file)
		loader.file(file, data, err, file == path)
	}
	return loader
}

// paths returns the files to read, the main file first.
func (l *loader) paths(path string, named bool) []string {
	var files []string
	if _, err := os.Stat(path); named || !errors.Is(err, fs.ErrNotExist) {
		files = append(files, path) // reading reports any other error
	}
	folder := filepath.Join(filepath.Dir(path), dropInFolder)
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.unreadable(folder, err)
	}
	for _, entry := range entries { // sorted by name
		if strings.HasSuffix(entry.Name(), ".toml") && !strings.HasPrefix(entry.Name(), ".") {
			files = append(files, filepath.Join(folder, entry.Name()))
		}
	}
	return files
}

func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: a pipe without a writer reads as empty
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	return data, err
}

// mistake records a mistake at the line of a key of a section.
func (l *loader) mistake(d *draft, key, format string, args ...any) {
	l.mistakes = append(l.mistakes, Mistake{d.file, d.lines[key], fmt.Sprintf(format, args...)})
}

// file adds a file; err is the error of reading it.
func (l *loader) file(name string, data []byte, err error, main bool) {
	l.config.Files = append(l.config.Files, name)
	if err != nil {
		l.unreadable(name, err)
		return
	}
	doc := scan(name, data)
	syntax := len(doc.mistakes) > 0 && len(doc.sections) == 1 && len(doc.sections[0].settings) == 0
	for _, sec := range doc.sections {
		d := sec.read(&doc, l.config)
		switch sec.name {
		case sectionRoot:
			if _, given := d.lines["schema_version"]; !given && main && !syntax {
				doc.mistake(1, "schema_version is missing; write schema_version = %d at the top", SchemaVersion)
			}
		case sectionDefaults:
			l.takeDefaults(d)
		case sectionRule:
			l.takeRule(d)
		case sectionDevice:
			l.takeDevice(d)
		}
	}
	l.mistakes = append(l.mistakes, doc.mistakes...)
	l.warnings = append(l.warnings, doc.warnings...)
}

// read turns a section into a draft. Mistakes are added to doc.
func (sec *section) read(doc *document, config *Config) *draft {
	d := &draft{file: doc.file, line: sec.line, kind: sec.name, lines: map[string]int{}, config: config}
	for _, set := range sec.settings {
		k, known := sec.key(set.key)
		if !known {
			if set.value.kind != unstable.InlineTable || !sec.isParent(set.key) {
				doc.mistake(set.line, "%s", sec.unknownKey(set.key))
			}
			continue
		}
		d.lines[set.key] = set.line
		if err := k.read(d, set.value); err != nil {
			doc.mistake(set.line, "%s: %v", set.key, err)
		} else if text := missingUnit(k, set.value); text != "" {
			doc.warnings = append(doc.warnings, Mistake{doc.file, set.line, text})
		}
	}
	return d
}

func (l *loader) takeDefaults(d *draft) {
	policy := &l.config.Policy
	policy.Defaults = policy.Defaults.With(&d.Rule)
	if _, given := d.lines[slotsMax.name]; given {
		l.slots = d.device.SlotsMax
	}
	l.defaults = append(l.defaults, d)
}

func set[T any](to *T, given *T) {
	if given != nil {
		*to = *given
	}
}

func (l *loader) takeRule(d *draft) {
	rule := d.Rule
	rule.Name = fmt.Sprintf("rule %s (%s:%d)", cmp.Or(d.Key, strconv.Itoa(len(l.rules)+1)), filepath.Base(d.file), d.line)
	l.config.Policy.Rules = append(l.config.Policy.Rules, rule)
	l.rules = append(l.rules, d)
}

func (l *loader) takeDevice(d *draft) {
	rule := d.device
	if rule.Also != nil && rule.Match.Vendor == accounting.VendorCPU {
		l.mistake(d, "also", "also: what computes on the processor is counted there unless a GPU's [[device]] says otherwise; leave it out, or write it there")
	}
	l.config.Policy.Devices = append(l.config.Policy.Devices, rule)
	l.devices = append(l.devices, d)
}

// applyDefaultSlots gives slots.max of [defaults] to each device rule without slots.max. For
// devices without a rule it appends a last rule.
func (l *loader) applyDefaultSlots() {
	devices := l.config.Policy.Devices
	for i, d := range l.devices {
		if _, given := d.lines[slotsMax.name]; !given {
			devices[i].SlotsMax = l.slots
		}
	}
	if l.slots != 0 {
		l.config.Policy.Devices = append(devices, rules.DeviceRule{SlotsMax: l.slots})
	}
}

// finish makes the checks that need the whole configuration, and returns it or the mistakes.
func (l *loader) finish() (*Config, error) {
	limits := l.config.Policy.Defaults
	for _, d := range l.defaults {
		l.checkOrder(d, limits.Min, limits.Max)
		l.checkEvict(d, limits.Evict)
	}
	named := map[string]*draft{}
	for _, d := range l.rules {
		if first := named[d.Key]; d.Key != "" && first != nil {
			l.mistake(d, "name", "name: %q is the name of the rule at %s:%d already", d.Key, first.file, first.line)
		} else {
			named[d.Key] = d
		}
		min, max := limits.Min, limits.Max
		set(&min, d.Min)
		set(&max, d.Max)
		l.checkOrder(d, min, max)
		l.checkEvict(d, limits.With(&d.Rule).Evict)
	}
	l.checkAlso()
	l.applyDefaultSlots()
	if len(l.mistakes) == 0 {
		return l.config, nil
	}
	l.sort(l.mistakes)
	return nil, slices.Compact(l.mistakes)
}

// checkEvict records the mistakes in the keys evict.* of a section; e are the settings of its programs.
func (l *loader) checkEvict(d *draft, e rules.Evict) {
	d.checkEvict(e, func(key, format string, args ...any) { l.mistake(d, key, format, args...) })
}

// checkAlso records a mistake for each driver that a second [[device]] section lists in its key also.
func (l *loader) checkAlso() {
	had := map[string]*draft{}
	for _, d := range l.devices {
		for _, driver := range d.device.Also {
			if first := had[driver]; first != nil {
				l.mistake(d, "also", "also: %q is counted by the [[device]] at %s:%d already", driver, first.file, first.line)
			} else {
				had[driver] = d
			}
		}
	}
}

// sort sorts mistakes by file and line.
func (l *loader) sort(mistakes Mistakes) {
	order := func(m Mistake) int { return slices.Index(l.config.Files, m.File) } // −1 for a folder, which comes first
	slices.SortStableFunc(mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Line, b.Line))
	})
}

// checkOrder finds a memory.min above its memory.max if a section sets one of them. A share and a
// number of bytes can be compared only on a device, where the arbiter bounds memory.min.
func (l *loader) checkOrder(d *draft, min, max accounting.Size) {
	key := "memory.min"
	if _, given := d.lines[key]; !given {
		key = "memory.max"
	}
	if (d.Min != nil || d.Max != nil) && min.MoreThan(max) {
		l.mistake(d, key, "memory.min (%s) is more than memory.max (%s)", min.WithUnit(), max.WithUnit())
	}
}
