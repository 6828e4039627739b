package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/arbiter/rules"
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

func readSize(to **accounting.Size, v value) error {
	if v.kind != unstable.String && v.kind != unstable.Integer {
		return v.wrongType(`a size ("4GiB", "25%", "max" or a number of bytes)`)
	}
	text := v.text
	if n, err := strconv.ParseInt(text, 0, 64); v.kind == unstable.Integer && err == nil {
		text = strconv.FormatInt(n, 10)
	}
	size, err := accounting.ParseSize(text)
	if err == nil {
		*to = &size
	}
	return err
}

// readMin reads a size that must have an end.
func readMin(to **accounting.Size, v value) error {
	var size *accounting.Size
	if err := readSize(&size, v); err != nil {
		return err
	}
	if size.Max {
		return errors.New(`cannot be "max": nothing would be left; write a size or "100%"`)
	}
	*to = size
	return nil
}

// readWord reads one of a few words.
func readWord[T ~string](to **T, v value, known ...T) error {
	word := T(v.text)
	if v.kind != unstable.String || !slices.Contains(known, word) {
		return v.wrongType(strings.Join(quoted(known), " or "))
	}
	*to = &word
	return nil
}

func quoted[T ~string](words []T) []string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = strconv.Quote(string(word))
	}
	return all
}

// ruleName is what a rule may be called: one word on a command line.
var ruleName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

func readName(d *draft, v value) error {
	if v.kind != unstable.String || !ruleName.MatchString(v.text) {
		return v.wrongType("a word of at most 64 letters, digits, _, . and -")
	}
	d.Key = v.text
	return nil
}

func readVendor(d *draft, v value) error {
	var vendor *string
	err := readWord(&vendor, v, "nvidia", "amd", "intel", accounting.VendorCPU)
	set(&d.device.Vendor, vendor)
	return err
}

// readUUID takes a UUID as the inventory spells it: hexadecimal digits in lower case.
func readUUID(d *draft, v value) error {
	if err := readText(&d.device.UUID, v); err != nil {
		return err
	}
	for _, prefix := range []string{"GPU-", "CPU-"} {
		if text := d.device.UUID; len(text) > len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
			d.device.UUID = prefix + strings.ToLower(text[len(prefix):])
		}
	}
	return nil
}

// readMemory reads how much memory the processor counts as having.
func readMemory(d *draft, v value) error {
	if err := readBytes(&d.memory, v, false); err != nil {
		return err
	}
	if *d.memory == 0 {
		return errors.New("must be above 0")
	}
	return nil
}

// readAlso reads which drivers that compute on the processor are counted on a GPU.
func readAlso(d *draft, v value) error {
	wrong := v.wrongType(fmt.Sprintf("a list of drivers: %s", strings.Join(quoted(rules.CPUDrivers), ", ")))
	if v.kind != unstable.Array || len(v.list) == 0 {
		return wrong
	}
	for _, driver := range v.list {
		switch {
		case driver.kind != unstable.String || !slices.Contains(rules.CPUDrivers, driver.text):
			return fmt.Errorf("%s is no driver that computes on the processor; known are %s", driver.shown(), strings.Join(quoted(rules.CPUDrivers), ", "))
		case slices.Contains(d.also, driver.text):
			return fmt.Errorf("%q is there twice", driver.text)
		}
		d.also = append(d.also, driver.text)
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
	d.device.PCI = fmt.Sprintf("%04s:%s", domain, parts[2])
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
	if rules.CheckGlob(v.text) != nil {
		return fmt.Errorf("%q is no pattern: a [ without its ], or a \\ at the end", v.text)
	}
	return nil
}

// readSlots takes "max" as 0: no limit.
func readSlots(d *draft, v value) error {
	if v.kind == unstable.String && v.text == "max" {
		d.slots = new(int)
		return nil
	}
	if readInt(&d.slots, v, 1, maxSlots) != nil {
		return v.wrongType(fmt.Sprintf(`"max" or an integer from 1 to %d`, maxSlots))
	}
	return nil
}

func readSlotScope(d *draft, v value) error {
	return readWord(&d.SlotScope, v, rules.ScopeJob, rules.ScopeProcess, rules.ScopeThread)
}

// readDuration reads a time above 0; where endless, "max" is taken too.
func readDuration(to **time.Duration, v value, endless bool) error {
	want := `a duration ("10m", "2s")`
	if endless {
		want += ` or "max"`
	}
	duration, err := time.ParseDuration(v.text)
	switch {
	case v.kind != unstable.String:
		return v.wrongType(want)
	case endless && v.text == "max":
		duration = rules.NoTimeout
	case err != nil || duration < 0:
		return v.wrongType(want)
	case duration == 0:
		return errors.New("must be above 0")
	}
	*to = &duration
	return nil
}

// readBytes reads a size that is no share of anything; with most, "max" may stand for no limit.
func readBytes(to **accounting.Bytes, v value, most bool) error {
	var size *accounting.Size
	read := readMin
	if most {
		read = readSize
	}
	if err := read(&size, v); err != nil {
		return err
	}
	if size.PerMille != 0 {
		return errors.New("cannot be a share: write bytes")
	}
	bytes := size.Of(0)
	*to = &bytes
	return nil
}

func readChargeOverhead(d *draft, v value) error {
	if v.kind != unstable.Bool {
		return v.wrongType("true or false")
	}
	charge := v.text == "true"
	d.chargeOverhead = &charge
	return nil
}
