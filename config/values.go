package config

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

// value is a TOML value. A table stands for itself beside the settings inside it, so
// that an empty or misplaced one is noticed.
type value struct {
	kind unstable.Kind
	text string  // decoded for a string, as written for other scalars
	list []value // of an array
}

// kind is a kind of values that keys have: how one is read from a file, and how it is spelled in one.
type kind[T any] struct {
	read  func(v value) (T, error)
	spell func(T) string // "": it is as if it was not said
	bytes bool           // a number without a unit is bytes
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

// versions are the schema_version that is read, and no other.
var versions = kind[int]{
	read: func(v value) (int, error) {
		n, err := integers(0, 1<<30).read(v)
		if err == nil && n != SchemaVersion {
			err = fmt.Errorf("is %d; this gpuarb reads version %d", n, SchemaVersion)
		}
		return n, err
	},
	spell: func(int) string { return strconv.Itoa(SchemaVersion) },
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
	return kind[int]{read: read, spell: strconv.Itoa}
}

var booleans = kind[bool]{
	read: func(v value) (bool, error) {
		if v.kind != unstable.Bool {
			return false, v.wrongType("true or false")
		}
		return v.text == "true", nil
	},
	spell: strconv.FormatBool,
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
	spell: func(s accounting.Size) string { return quote(s.WithUnit()) },
	bytes: true,
}

// ends are sizes that have an end.
var ends = kind[accounting.Size]{
	read: func(v value) (accounting.Size, error) {
		size, err := sizes.read(v)
		if err == nil && size.Max {
			err = errors.New(`cannot be "max": nothing would be left; write a size or "100%"`)
		}
		return size, err
	},
	spell: sizes.spell,
	bytes: true,
}

// amounts are sizes that are no share of anything.
func amounts(of kind[accounting.Size]) kind[accounting.Bytes] {
	read := func(v value) (accounting.Bytes, error) {
		size, err := of.read(v)
		if err == nil && size.PerMille != 0 {
			err = errors.New("cannot be a share: write bytes")
		}
		return size.Of(0), err
	}
	return kind[accounting.Bytes]{read, func(n accounting.Bytes) string { return of.spell(accounting.Absolute(n)) }, true}
}

// memory is how much the processor counts as having.
var memory = kind[accounting.Bytes]{
	read: func(v value) (accounting.Bytes, error) {
		n, err := amounts(ends).read(v)
		if err == nil && n == 0 {
			err = errors.New("must be above 0")
		}
		return n, err
	},
	spell: func(n accounting.Bytes) string {
		if n == 0 {
			return ""
		}
		return amounts(ends).spell(n)
	},
	bytes: true,
}

// maxSlots bounds slots.max, likewise far above what there can be.
const maxSlots = 1 << 20

// slots are numbers of slots, where "max" is 0: no limit.
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
	spell: func(n int) string {
		if n == 0 {
			return quote("max")
		}
		return strconv.Itoa(n)
	},
}

// durations are times above 0; where endless, "max" is taken too.
func durations(endless bool) kind[time.Duration] {
	want := `a duration ("10m", "2s")`
	if endless {
		want += ` or "max"`
	}
	read := func(v value) (time.Duration, error) {
		duration, err := time.ParseDuration(v.text)
		switch {
		case v.kind != unstable.String:
			return 0, v.wrongType(want)
		case endless && v.text == "max":
			return rules.NoTimeout, nil
		case err != nil || duration < 0:
			return 0, v.wrongType(want)
		case duration == 0:
			return 0, errors.New("must be above 0")
		}
		return duration, nil
	}
	spell := func(d time.Duration) string {
		if d == rules.NoTimeout {
			return quote("max")
		}
		return quote(d.String())
	}
	return kind[time.Duration]{read: read, spell: spell}
}

// words are a few known ones.
func words[T ~string](known ...T) kind[T] {
	read := func(v value) (T, error) {
		word := T(v.text)
		if v.kind != unstable.String || !slices.Contains(known, word) {
			return "", v.wrongType(strings.Join(quoted(known), " or "))
		}
		return word, nil
	}
	return kind[T]{read: read, spell: func(word T) string { return unlessEmpty(string(word)) }}
}

// textual makes a kind of texts; the empty one is as if it was not said.
func textual(read func(v value) (string, error)) kind[string] {
	return kind[string]{read: read, spell: unlessEmpty}
}

// something is any text but an empty one.
func something(v value) (string, error) {
	if v.kind != unstable.String || strings.TrimSpace(v.text) == "" {
		return "", v.wrongType("a string with something in it")
	}
	return v.text, nil
}

// ruleName is what a rule may be called: one word on a command line.
var ruleName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

var ruleNames = textual(func(v value) (string, error) {
	if v.kind != unstable.String || !ruleName.MatchString(v.text) {
		return "", v.wrongType("a word of at most 64 letters, digits, _, . and -")
	}
	return v.text, nil
})

var patterns = textual(func(v value) (string, error) {
	text, err := something(v)
	if err == nil && rules.CheckGlob(text) != nil {
		err = fmt.Errorf("%q is no pattern: a [ without its ], or a \\ at the end", text)
	}
	return text, err
})

// uuids are spelled as the inventory does: hexadecimal digits in lower case.
var uuids = textual(func(v value) (string, error) {
	text, err := something(v)
	for _, prefix := range []string{"GPU-", "MIG-", "CPU-"} {
		if len(text) > len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
			text = prefix + strings.ToLower(text[len(prefix):])
		}
	}
	return text, err
})

// pciAddress is domain:bus:device.function; some tools write the domain with eight
// digits, and some leave it out.
var pciAddress = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// addresses are PCI's, spelled as the inventory does: four digits of domain.
var addresses = textual(func(v value) (string, error) {
	parts := pciAddress.FindStringSubmatch(strings.ToLower(v.text))
	if v.kind != unstable.String || parts == nil {
		return "", v.wrongType(`a PCI address ("0000:01:00.0")`)
	}
	return fmt.Sprintf("%04s:%s", strings.TrimLeft(parts[1], "0"), parts[2]), nil
})

// folders are absolute paths; the empty text is none, by which a later file takes one back.
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
	spell: quote,
}

// drivers compute on the processor, and are counted on a GPU.
var drivers = kind[[]string]{
	read: func(v value) (list []string, err error) {
		if v.kind != unstable.Array || len(v.list) == 0 {
			return nil, v.wrongType(fmt.Sprintf("a list of drivers: %s", strings.Join(quoted(rules.CPUDrivers), ", ")))
		}
		for _, driver := range v.list {
			switch {
			case driver.kind != unstable.String || !slices.Contains(rules.CPUDrivers, driver.text):
				return list, fmt.Errorf("%s is no driver that computes on the processor; known are %s", driver.shown(), strings.Join(quoted(rules.CPUDrivers), ", "))
			case slices.Contains(list, driver.text):
				return list, fmt.Errorf("%q is there twice", driver.text)
			}
			list = append(list, driver.text)
		}
		return list, nil
	},
	spell: spellList,
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

// quote spells text as a TOML basic string.
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
