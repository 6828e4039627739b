package config

// This file reads and writes the values of keys: sizes, durations, names and others. schema.go says
// which key has which kind of value.

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
	"github.com/pelletier/go-toml/v2/unstable"
)

// value is a TOML value. An inline table is a value itself, in addition to the settings in it. So
// an empty or misplaced table is noticed.
type value struct {
	kind unstable.Kind
	text string  // decoded for a string, as written for other scalars
	list []value // elements of an array
}

// kind is a kind of value: how it is read from a file and written to it.
type kind[T any] struct {
	read   func(v value) (T, error)
	format func(T) string // "": the key is not set
	bytes  bool           // a number without a unit is bytes
}

// display returns a value for a message, as in the file but without the elements of tables and
// arrays.
func (v value) display() string {
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
	return fmt.Errorf("must be %s, not %s", want, v.display())
}

// versions reads the schema_version, and accepts only SchemaVersion.
var versions = kind[int]{
	read: func(v value) (int, error) {
		n, err := integers(0, 1<<30).read(v)
		if err == nil && n != SchemaVersion {
			err = fmt.Errorf("is %d; this gpuarb reads version %d", n, SchemaVersion)
		}
		return n, err
	},
	format: func(int) string { return strconv.Itoa(SchemaVersion) },
}

func integers(least, most int64) kind[int] {
	read := func(v value) (int, error) {
		if v.kind != unstable.Integer {
			return 0, v.wrongType("an integer")
		}
		n, err := strconv.ParseInt(v.text, 0, 64)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be from %d to %d, not %s", least, most, v.text)
		}
		return int(n), nil
	}
	return kind[int]{read: read, format: strconv.Itoa}
}

var booleans = kind[bool]{
	read: func(v value) (bool, error) {
		if v.kind != unstable.Bool {
			return false, v.wrongType("true or false")
		}
		return v.text == "true", nil
	},
	format: strconv.FormatBool,
}

var sizes = kind[accounting.Size]{
	read: func(v value) (accounting.Size, error) {
		if v.kind != unstable.String && v.kind != unstable.Integer {
			return accounting.Size{}, v.wrongType(`a size ("4GiB", "25%", "max" or a number of bytes)`)
		}
		text := v.text
		if n, err := strconv.ParseInt(text, 0, 64); v.kind == unstable.Integer && err == nil {
			text = strconv.FormatInt(n, 10)
		}
		return accounting.ParseSize(text)
	},
	format: func(s accounting.Size) string { return quote(s.WithUnit()) },
	bytes:  true,
}

// boundedSizes reads sizes other than "max".
var boundedSizes = kind[accounting.Size]{
	read: func(v value) (accounting.Size, error) {
		size, err := sizes.read(v)
		if err == nil && size.Max {
			err = errors.New(`cannot be "max": nothing would be left; write a size or "100%"`)
		}
		return size, err
	},
	format: sizes.format,
	bytes:  true,
}

// amounts makes a kind for numbers of bytes from a kind for sizes. It refuses a share of a device.
func amounts(of kind[accounting.Size]) kind[accounting.Bytes] {
	read := func(v value) (accounting.Bytes, error) {
		size, err := of.read(v)
		if err == nil && size.PerMille != 0 {
			err = errors.New("cannot be a share: write bytes")
		}
		return size.Of(0), err
	}
	return kind[accounting.Bytes]{read, func(n accounting.Bytes) string { return of.format(accounting.Absolute(n)) }, true}
}

// memory reads how much memory the processor has for gpuarb.
var memory = kind[accounting.Bytes]{
	read: func(v value) (accounting.Bytes, error) {
		n, err := amounts(boundedSizes).read(v)
		if err == nil && n == 0 {
			err = errors.New("must be above 0")
		}
		return n, err
	},
	format: func(n accounting.Bytes) string {
		if n == 0 {
			return ""
		}
		return amounts(boundedSizes).format(n)
	},
	bytes: true,
}

// maxSlots bounds slots.max, far above any useful number.
const maxSlots = 1 << 20

// slots reads numbers of slots; "max" becomes 0, which means no limit.
var slots = kind[int]{
	read: func(v value) (int, error) {
		if v.kind == unstable.String && v.text == "max" {
			return 0, nil
		}
		n, err := integers(1, maxSlots).read(v)
		if err != nil {
			err = v.wrongType(fmt.Sprintf(`"max" or an integer from 1 to %d`, maxSlots))
		}
		return n, err
	},
	format: func(n int) string {
		if n == 0 {
			return quote("max")
		}
		return strconv.Itoa(n)
	},
}

// durations reads times above 0. If endless is true, "max" is accepted too.
func durations(endless bool) kind[time.Duration] {
	want := `a duration ("10m", "2s")`
	if endless {
		want += ` or "max"`
	}
	read := func(v value) (time.Duration, error) {
		duration, err := parseDuration(v.text)
		switch {
		case v.kind != unstable.String:
			return 0, v.wrongType(want)
		case endless && v.text == "max":
			return rules.NoTimeout, nil
		case err != nil || duration < 0:
			return 0, v.wrongType(want)
		case duration == 0:
			return 0, errZero
		}
		return duration, nil
	}
	format := func(d time.Duration) string {
		if d == rules.NoTimeout {
			return quote("max")
		}
		return quote(d.String())
	}
	return kind[time.Duration]{read: read, format: format}
}

// errZero is the error of a duration of 0.
var errZero = errors.New("must be above 0")

// day is the longest unit of a duration: "7d", "1d12h".
const day = 24 * time.Hour

// parseDuration reads a duration. Other than time.ParseDuration it knows days, which must come first.
func parseDuration(text string) (time.Duration, error) {
	number, rest, found := strings.Cut(text, "d")
	if !found {
		return time.ParseDuration(text)
	}
	days, err := strconv.ParseUint(number, 10, 16)
	if err != nil || rest == "" {
		return time.Duration(days) * day, err
	}
	short, err := time.ParseDuration(rest)
	if short < 0 {
		err = errors.New("a negative part")
	}
	return time.Duration(days)*day + short, err
}

// Bounds of idle.warn and age.warn.
const (
	minWarn = time.Second
	maxWarn = 30 * day
)

// warnTimes reads the times of idle.warn and age.warn.
var warnTimes = durationsFrom(minWarn, maxWarn, "1s to 30d", true)

// Bounds of evict.idle_after, evict.min_resident and evict.timeout.
const (
	minEvict     = 100 * time.Millisecond
	maxEvict     = 30 * day
	maxEvictHook = time.Hour
)

// Kinds of the times of evict.
var (
	evictTimes    = durationsFrom(minEvict, maxEvict, "100ms to 30d", false)
	evictTimeouts = durationsFrom(minEvict, maxEvictHook, "100ms to 1h", false)
)

// durationsFrom reads times from least to most, which spelled says in words. If endless is true, "max" is accepted too and means never.
func durationsFrom(least, most time.Duration, spelled string, endless bool) kind[time.Duration] {
	if endless {
		spelled += `, or "max" for never`
	}
	return kind[time.Duration]{
		read: func(v value) (time.Duration, error) {
			duration, err := durations(endless).read(v)
			if errors.Is(err, errZero) || err == nil && duration != rules.NoTimeout && (duration < least || duration > most) {
				err = fmt.Errorf(`must be from %s, not %s`, spelled, v.display())
			}
			return duration, err
		},
		format: durations(endless).format,
	}
}

// words reads one of a few known words.
func words[T ~string](known ...T) kind[T] {
	read := func(v value) (T, error) {
		word := T(v.text)
		if v.kind != unstable.String || !slices.Contains(known, word) {
			return "", v.wrongType(strings.Join(quoted(known), " or "))
		}
		return word, nil
	}
	return kind[T]{read: read, format: func(word T) string { return unlessEmpty(string(word)) }}
}

// textKind makes a kind of text. An empty text counts as not set.
func textKind(read func(v value) (string, error)) kind[string] {
	return kind[string]{read: read, format: unlessEmpty}
}

// nonEmpty reads any text that is not empty.
func nonEmpty(v value) (string, error) {
	if v.kind != unstable.String || strings.TrimSpace(v.text) == "" {
		return "", v.wrongType("a string with something in it")
	}
	return v.text, nil
}

// exampleCommand is a command for messages.
const exampleCommand = `["/usr/bin/curl", "-fsS", "-X", "POST", "http://localhost:8000/sleep?level=1"]`

// commands reads the list of arguments of a program, whose path must be absolute.
var commands = kind[rules.Command]{
	read: func(v value) (rules.Command, error) {
		if v.kind != unstable.Array || len(v.list) == 0 {
			return "", v.wrongType("a list of strings, such as " + exampleCommand)
		}
		var args []string
		for _, part := range v.list {
			if part.kind != unstable.String || strings.Contains(part.text, "\x00") {
				return "", part.wrongType("a string")
			}
			args = append(args, part.text)
		}
		if !filepath.IsAbs(args[0]) {
			return "", fmt.Errorf("must begin with the absolute path of a program, not %q", args[0])
		}
		return rules.MakeCommand(args), nil
	},
	format: func(c rules.Command) string { return "[" + strings.Join(quoted(c.Args()), ", ") + "]" },
}

// ruleName matches the names of rules: one word on a command line.
var ruleName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

var ruleNames = textKind(func(v value) (string, error) {
	if v.kind != unstable.String || !ruleName.MatchString(v.text) {
		return "", v.wrongType("a word of at most 64 letters, digits, _, . and -")
	}
	return v.text, nil
})

var patterns = textKind(func(v value) (string, error) {
	text, err := nonEmpty(v)
	if err == nil && rules.CheckGlob(text) != nil {
		err = fmt.Errorf("%q is no pattern: a [ without its ], or a \\ at the end", text)
	}
	return text, err
})

// uuids reads UUIDs in the spelling of package inventory: hexadecimal digits in lower case.
var uuids = textKind(func(v value) (string, error) {
	text, err := nonEmpty(v)
	for _, prefix := range []string{"GPU-", "MIG-", "CPU-"} {
		if len(text) > len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
			text = prefix + strings.ToLower(text[len(prefix):])
		}
	}
	return text, err
})

// pciAddress matches domain:bus:device.function. Some tools write the domain with eight digits,
// others leave it out.
var pciAddress = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// addresses reads PCI addresses in the spelling of package inventory: four digits for the domain.
var addresses = textKind(func(v value) (string, error) {
	parts := pciAddress.FindStringSubmatch(strings.ToLower(v.text))
	if v.kind != unstable.String || parts == nil {
		return "", v.wrongType(`a PCI address ("0000:01:00.0")`)
	}
	return fmt.Sprintf("%04s:%s", strings.TrimLeft(parts[1], "0"), parts[2]), nil
})

// folders reads absolute paths. The empty text means none, so that a later file can remove a path.
var folders = kind[string]{
	read: func(v value) (string, error) {
		switch {
		case v.kind != unstable.String:
			return "", v.wrongType(`a folder ("/run/gpuarb/dcgm"), or "" for none`)
		case v.text == "":
			return "", nil
		case !filepath.IsAbs(v.text) || strings.ContainsRune(v.text, 0):
			return "", errors.New("the path must be absolute")
		}
		return filepath.Clean(v.text), nil
	},
	format: quote,
}

// drivers reads a list of drivers that compute on the processor. A GPU's section lists them in the
// key also; what they use then counts on that GPU.
var drivers = kind[[]string]{
	read: func(v value) (list []string, err error) {
		if v.kind != unstable.Array || len(v.list) == 0 {
			return nil, v.wrongType(fmt.Sprintf("a list of drivers: %s", strings.Join(quoted(rules.CPUDrivers), ", ")))
		}
		for _, driver := range v.list {
			switch {
			case driver.kind != unstable.String || !slices.Contains(rules.CPUDrivers, driver.text):
				return list, fmt.Errorf("%s is no driver that computes on the processor; known are %s", driver.display(), strings.Join(quoted(rules.CPUDrivers), ", "))
			case slices.Contains(list, driver.text):
				return list, fmt.Errorf("%q is there twice", driver.text)
			}
			list = append(list, driver.text)
		}
		return list, nil
	},
	format: spellList,
}

// mostDevices bounds the list of devices of a rule: a machine has no more.
const mostDevices = 64

// deviceLists reads a list of devices, each an index or a UUID in the spelling of `gpuarb devices`.
var deviceLists = kind[rules.DeviceList]{
	read: func(v value) (rules.DeviceList, error) {
		const want = `a list of devices ([0, "GPU-…"])`
		var names []string
		if v.kind != unstable.Array {
			return "", v.wrongType(want)
		}
		if len(v.list) == 0 {
			return "", errors.New("must name a device, as [0]; a rule without the key allows every device")
		}
		for _, of := range v.list {
			name, err := deviceName(of)
			switch {
			case err != nil:
				return "", err
			case slices.Contains(names, name):
				return "", fmt.Errorf("device %s is there twice", of.display())
			case len(names) == mostDevices:
				return "", fmt.Errorf("must name at most %d devices", mostDevices)
			}
			names = append(names, name)
		}
		return rules.ListDevices(names), nil
	},
	format: func(list rules.DeviceList) string {
		var all []string
		for _, name := range list.Names() {
			if _, err := strconv.Atoi(name); err != nil {
				name = quote(name)
			}
			all = append(all, name)
		}
		if all == nil {
			return ""
		}
		return "[" + strings.Join(all, ", ") + "]"
	},
}

// deviceUUID matches the UUIDs of GPUs and of MIG instances in the spelling of package inventory.
var deviceUUID = regexp.MustCompile(`^(GPU|MIG)-[0-9A-Za-z/-]+$`)

// deviceName reads an element of a list of devices: an index or a UUID.
func deviceName(v value) (string, error) {
	if v.kind == unstable.Integer {
		n, err := integers(0, accounting.MaxGPUs-1).read(v)
		return strconv.Itoa(n), err
	}
	uuid, err := uuids.read(v)
	if err != nil || !deviceUUID.MatchString(uuid) {
		return "", fmt.Errorf("%s is neither the index nor the UUID of a GPU; `gpuarb devices` shows both", v.display())
	}
	return uuid, nil
}

func spellList(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return "[" + strings.Join(quoted(words), ", ") + "]"
}

func quoted[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = strconv.Quote(string(word))
	}
	return all
}

func unlessEmpty(text string) string {
	if text == "" {
		return ""
	}
	return quote(text)
}

// quote returns text as a TOML basic string.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\u` + fmt.Sprintf("%04x", r))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
