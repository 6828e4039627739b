package accounting

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// Size is an amount of device memory as people write it, which may be a share of a device.
// Max comes first, then a PerMille above 0, then Bytes.
type Size struct {
	Bytes    Bytes
	PerMille uint32 // of each device
	Max      bool   // no limit
}

// Absolute returns the size of b bytes; [Max] gives no limit.
func Absolute(b Bytes) Size { return Size{Bytes: b, Max: b == Max} }

// IsAbsolute tells an amount of bytes from a share and from no limit.
func (s Size) IsAbsolute() bool { return !s.Max && s.PerMille == 0 }

// Of returns the amount on a device of total bytes, rounded down: [Max] for no limit.
func (s Size) Of(total Bytes) Bytes {
	switch {
	case s.Max:
		return Max
	case s.PerMille == 0:
		return s.Bytes
	}
	hi, lo := bits.Mul64(uint64(total), uint64(s.PerMille))
	if hi >= perMilleOfAll {
		return Max
	}
	q, _ := bits.Div64(hi, lo, perMilleOfAll)
	return Bytes(q)
}

// MoreThan says whether s is surely more than t. A share and a number of bytes can be compared
// only on a device, and nothing is said of no limit: neither is then more.
func (s Size) MoreThan(t Size) bool {
	if s.Max || t.Max || s.IsAbsolute() != t.IsAbsolute() {
		return false
	}
	return s.PerMille > t.PerMille || s.Bytes > t.Bytes
}

// String writes a size as files show it: bytes, "25%", "max".
func (s Size) String() string {
	switch {
	case s.Max:
		return "max"
	case s.PerMille != 0:
		return strconv.FormatFloat(float64(s.PerMille)/10, 'f', -1, 64) + "%"
	}
	return strconv.FormatUint(uint64(s.Bytes), 10)
}

// WithUnit is String with the largest unit that divides the bytes: "4GiB". [ParseSize] reads both.
func (s Size) WithUnit() string {
	if s.IsAbsolute() && s.Bytes > 0 {
		for _, unit := range []string{"T", "G", "M", "K"} {
			if shift := units[unit]; s.Bytes%(1<<shift) == 0 {
				return strconv.FormatUint(uint64(s.Bytes)>>shift, 10) + unit + "iB"
			}
		}
	}
	return s.String()
}

// ParseCount reads a limit of things that are counted, from 1 on: streams, slots.
func ParseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no number from 1 to %d", text, math.MaxInt32)
	}
	return int(n), nil
}

// longestSize bounds the text of a size, so that a mistake stays readable and cheap.
const longestSize = 40

// perMilleOfAll is a share of a whole device.
const perMilleOfAll = 1000

// units gives the power of two of each unit, upper case, without its "B" or "iB".
var units = map[string]uint{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

// ParseSize reads an amount of device memory: bytes ("4294967296"), a number with a
// binary unit ("4G", "4GiB", "4096M", "1.5G"), a share of the device ("25%") or
// "max" for no limit. K, M, G and T are powers of 1024, also as KB, MB, GB and TB;
// case does not matter, and a space before the unit is allowed. A fraction of a unit is rounded
// down to whole bytes; a share goes in tenths of a percent. The library reads sizes in its
// environment the same way (cshim/core/env.c).
//
// The error names the text and what is wrong with it, in one line.
func ParseSize(text string) (Size, error) {
	size, err := parseSize(strings.TrimSpace(text))
	if err != nil {
		if len(text) > longestSize {
			text = strings.ToValidUTF8(text[:longestSize], "") + "…"
		}
		return Size{}, fmt.Errorf("%q is no size: %w", text, err)
	}
	return size, nil
}

func parseSize(text string) (Size, error) {
	switch {
	case text == "":
		return Size{}, errors.New(`it is empty; write bytes, "4GiB", "25%" or "max"`)
	case len(text) > longestSize:
		return Size{}, fmt.Errorf("it is longer than %d characters", longestSize)
	case strings.EqualFold(text, "max"):
		return Size{Max: true}, nil
	case text[0] == '-':
		return Size{}, errors.New("it is negative")
	}
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	number, unit := text[:end], strings.TrimSpace(text[end:])
	n, err := parseDecimal(number)
	if err != nil {
		return Size{}, err
	}
	if unit == "%" {
		return share(n)
	}
	bytes, err := absolute(n, unit)
	return Size{Bytes: bytes}, err
}

// parseDecimal reads digits, which may have a point between them.
func parseDecimal(number string) (*big.Rat, error) {
	whole, fraction, dotted := strings.Cut(number, ".")
	if whole == "" || (dotted && fraction == "") || strings.Contains(fraction, ".") {
		return nil, errors.New(`it does not start with a number; write bytes, "4GiB", "25%" or "max"`)
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return nil, errors.New("its number cannot be read")
	}
	return n, nil
}

func share(percent *big.Rat) (Size, error) {
	n := percent.Mul(percent, big.NewRat(perMilleOfAll/100, 1))
	switch {
	case n.Cmp(big.NewRat(perMilleOfAll, 1)) > 0:
		return Size{}, errors.New("it is more than 100% of a device")
	case !n.IsInt():
		return Size{}, errors.New("a share goes in steps of 0.1%")
	}
	return Size{PerMille: uint32(n.Num().Uint64())}, nil // 0, nothing of any device: an absolute zero
}

func absolute(n *big.Rat, unit string) (Bytes, error) {
	shift, err := unitShift(unit)
	if err != nil {
		return 0, err
	}
	n.Mul(n, new(big.Rat).SetInt64(1<<shift))
	bytes := new(big.Int).Quo(n.Num(), n.Denom())
	if !bytes.IsInt64() {
		return 0, errors.New(`it is larger than 8 EiB; for no limit write "max"`)
	}
	if !n.IsInt() && shift == 0 {
		return 0, errors.New("there is no part of a byte")
	}
	return Bytes(bytes.Uint64()), nil
}

// unitShift gives the power of two that a unit stands for.
func unitShift(unit string) (uint, error) {
	letter := strings.ToUpper(unit)
	for _, suffix := range []string{"IB", "B"} {
		if rest, cut := strings.CutSuffix(letter, suffix); cut {
			if letter = rest; letter == "" && suffix == "IB" {
				letter = unit // "iB" alone is no unit
			}
			break
		}
	}
	shift, ok := units[letter]
	if !ok {
		return 0, fmt.Errorf("its unit %q is unknown; K, M, G, T (powers of 1024) and %% are known", unit)
	}
	return shift, nil
}
