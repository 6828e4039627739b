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

// This file has sizes as users write them in the configuration, in commands and in files, and parses them. bytes.go has plain byte counts.

// Size is an amount of device memory as users write it: bytes, or a share of a device. If several fields are set, Max counts first, then
// PerMille, then Bytes.
type Size struct {
	Bytes    Bytes
	PerMille uint32 // share of each device in thousandths; 0: Bytes counts
	Max      bool   // no limit
}

// Absolute returns the size of b bytes; [Max]: no limit.
func Absolute(b Bytes) Size { return Size{Bytes: b, Max: b == Max} }

// IsAbsolute reports whether s is a number of bytes: not a share, and not "no limit".
func (s Size) IsAbsolute() bool { return !s.Max && s.PerMille == 0 }

// Of returns the bytes of s on a device of total bytes, rounded down; [Max]: no limit.
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

// MoreThan reports whether s is more than t on every device. A share and a number of bytes can be compared only on a given device, and "no
// limit" with nothing; the result is then false.
func (s Size) MoreThan(t Size) bool {
	if s.Max || t.Max || s.IsAbsolute() != t.IsAbsolute() {
		return false
	}
	return s.PerMille > t.PerMille || s.Bytes > t.Bytes
}

// String returns a size as files show it: bytes, "25%", "max".
func (s Size) String() string {
	switch {
	case s.Max:
		return "max"
	case s.PerMille != 0:
		return strconv.FormatFloat(float64(s.PerMille)/10, 'f', -1, 64) + "%"
	}
	return strconv.FormatUint(uint64(s.Bytes), 10)
}

// WithUnit returns String with the largest unit that divides the bytes: "4GiB". [ParseSize] reads both.
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

// ParseCount parses a limit of a number of things, such as streams or slots. The limit is at least 1.
func ParseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no number from 1 to %d", text, math.MaxInt32)
	}
	return int(n), nil
}

// longestSize is the longest text of a size in bytes. It keeps errors readable and parsing cheap.
const longestSize = 40

// perMilleOfAll is a whole device as a share.
const perMilleOfAll = 1000

// units has the power of two of each unit. Units are in upper case, without "B" or "iB".
var units = map[string]uint{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

// ParseSize parses an amount of device memory: bytes ("4294967296"), a number with a binary unit ("4G", "4GiB", "4096M", "1.5G"), a share
// of the device ("25%"), or "max" for no limit. K, M, G and T are powers of 1024, also as KB, MB, GB and TB. Case does not matter, and a
// space before the unit is allowed. A fraction of a unit is rounded down to whole bytes. A share has at most one decimal place. The C
// library parses sizes in its environment in the same way (cshim/core/env.c).
//
// The error has the text and what is wrong with it, in one line.
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

// parseSize does the work of ParseSize. Its errors do not have the text.
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

// parseDecimal parses digits, which may have a decimal point between them.
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

// share returns a share of a device in percent as a Size.
func share(percent *big.Rat) (Size, error) {
	n := percent.Mul(percent, big.NewRat(perMilleOfAll/100, 1))
	switch {
	case n.Cmp(big.NewRat(perMilleOfAll, 1)) > 0:
		return Size{}, errors.New("it is more than 100% of a device")
	case !n.IsInt():
		return Size{}, errors.New("a share goes in steps of 0.1%")
	}
	return Size{PerMille: uint32(n.Num().Uint64())}, nil // a share of 0 is 0 bytes on every device
}

// absolute returns n units as bytes.
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

// unitShift returns the power of two of a unit.
func unitShift(unit string) (uint, error) {
	letter := strings.ToUpper(unit)
	for _, suffix := range []string{"IB", "B"} {
		if rest, cut := strings.CutSuffix(letter, suffix); cut {
			if letter = rest; letter == "" && suffix == "IB" {
				letter = unit // "iB" alone is not a unit
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
