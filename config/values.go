package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/arbiter"
	"github.com/pelletier/go-toml/v2/unstable"
)

func readVersion(d *draft, v value) error {
	if err := readInt(&d.version, v, 0, 1<<30); err != nil {
		return err
	}
	if *d.version != SchemaVersion {
		return fmt.Errorf("is %d; this gpuarb reads version %d", *d.version, SchemaVersion)
	}
	return nil
}

func readInt(to **int, v value, least, most int64) error {
	if v.kind != unstable.Integer {
		return v.wrongType("an integer")
	}
	n, err := strconv.ParseInt(v.text, 0, 64)
	if err != nil || n < least || n > most {
		return fmt.Errorf("must be from %d to %d, not %s", least, most, v.text)
	}
	result := int(n)
	*to = &result
	return nil
}

func readSize(to **arbiter.Size, v value) error {
	if v.kind != unstable.String && v.kind != unstable.Integer {
		return v.wrongType(`a size ("4GiB", "25%", "max" or a number of bytes)`)
	}
	text := v.text
	if n, err := strconv.ParseInt(text, 0, 64); v.kind == unstable.Integer && err == nil {
		text = strconv.FormatInt(n, 10)
	}
	size, err := ParseSize(text)
	if err == nil {
		*to = &size
	}
	return err
}

// readMin reads a size that must have an end.
func readMin(to **arbiter.Size, v value) error {
	var size *arbiter.Size
	if err := readSize(&size, v); err != nil {
		return err
	}
	if size.Max {
		return errors.New(`cannot be "max": nothing would be left; write a size or "100%"`)
	}
	*to = size
	return nil
}

func readWord(v value, known ...string) (string, error) {
	if v.kind == unstable.String && slices.Contains(known, v.text) {
		return v.text, nil
	}
	return "", v.wrongType(strings.Join(quoted(known), " or "))
}

func quoted(words []string) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = strconv.Quote(word)
	}
	return all
}

func readScope(d *draft, v value) error {
	word, err := readWord(v, string(arbiter.ScopeJob), string(arbiter.ScopeProcess), string(arbiter.ScopeUser), string(arbiter.ScopeCgroup))
	if err == nil {
		scope := arbiter.Scope(word)
		d.scope = &scope
	}
	return err
}

func readOnLoss(d *draft, v value) error {
	word, err := readWord(v, string(LossOpen), string(LossClosed))
	if err == nil {
		loss := OnLoss(word)
		d.onLoss = &loss
	}
	return err
}

// laterOnLoss: the answer is one for all programs, so far.
func laterOnLoss(_ *draft, v value) error {
	if _, err := readWord(v, string(LossOpen), string(LossClosed)); err != nil {
		return err
	}
	return errors.New("cannot be set in a rule yet; set it in [defaults]")
}

func readVendor(d *draft, v value) error {
	word, err := readWord(v, "nvidia", "amd", "intel")
	d.vendor = word
	return err
}

// readUUID takes a UUID as the inventory spells it: hexadecimal digits in lower case.
func readUUID(d *draft, v value) error {
	if err := readText(&d.uuid, v); err != nil {
		return err
	}
	if len(d.uuid) > len("GPU-") && strings.EqualFold(d.uuid[:len("GPU-")], "GPU-") {
		d.uuid = "GPU-" + strings.ToLower(d.uuid[len("GPU-"):])
	}
	return nil
}

// pciAddress is domain:bus:device.function; some tools write the domain with eight
// digits, and some leave it out.
var pciAddress = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])$`)

// readPCI takes a PCI address as the inventory spells it: four digits of domain.
func readPCI(d *draft, v value) error {
	parts := pciAddress.FindStringSubmatch(strings.ToLower(v.text))
	if v.kind != unstable.String || parts == nil {
		return v.wrongType(`a PCI address ("0000:01:00.0")`)
	}
	domain := strings.TrimLeft(parts[1], "0")
	d.pci = fmt.Sprintf("%04s:%s", domain, parts[2])
	return nil
}

func readText(to *string, v value) error {
	if v.kind != unstable.String || strings.TrimSpace(v.text) == "" {
		return v.wrongType("a string with something in it")
	}
	*to = v.text
	return nil
}

func readGlob(to *string, v value) error {
	if err := readText(to, v); err != nil {
		return err
	}
	if arbiter.CheckGlob(v.text) != nil {
		return fmt.Errorf("%q is no pattern: a [ without its ], or a \\ at the end", v.text)
	}
	return nil
}

// readSlots takes slots.max = "max", which is how every device is today.
func readSlots(_ *draft, v value) error {
	if v.kind == unstable.String && v.text == "max" {
		return nil
	}
	var n *int
	if err := readInt(&n, v, 1, 1<<20); err != nil {
		return v.wrongType(`"max" or an integer from 1`)
	}
	return errLater
}

// words takes the first of known, and knows the others as later.
func words(known ...string) reader {
	return func(_ *draft, v value) error {
		word, err := readWord(v, known...)
		if err == nil && word != known[0] {
			err = errLater
		}
		return err
	}
}

func laterInt(today int) reader {
	return func(_ *draft, v value) error {
		var n *int
		if err := readInt(&n, v, -1<<31, 1<<31-1); err != nil {
			return err
		}
		if *n != today {
			return errLater
		}
		return nil
	}
}

func laterBool(_ *draft, v value) error {
	if v.kind != unstable.Bool {
		return v.wrongType("true or false")
	}
	if v.text == "true" {
		return errLater
	}
	return nil
}

func laterDuration(_ *draft, v value) error {
	if v.kind != unstable.String {
		return v.wrongType(`a duration ("10m", "2s")`)
	}
	if duration, err := time.ParseDuration(v.text); err != nil || duration < 0 {
		return v.wrongType(`a duration ("10m", "2s")`)
	}
	return errLater
}

func laterSize(today arbiter.Size) reader {
	return func(_ *draft, v value) error {
		var size *arbiter.Size
		if err := readMin(&size, v); err != nil {
			return err
		}
		if *size != today {
			return errLater
		}
		return nil
	}
}
