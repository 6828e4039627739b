package accounting

import (
	"math"
	"math/bits"
	"strconv"
)

// This file has the type of all byte counts, with saturating arithmetic and its texts. size.go has sizes that may be shares of a device.

// Bytes is an amount of device memory. Max stands for "no limit".
type Bytes uint64

// Max means no limit; files and flags show it as "max".
const Max Bytes = math.MaxUint64

// Plus returns b + c, at most Max.
func (b Bytes) Plus(c Bytes) Bytes {
	if b > Max-c {
		return Max
	}
	return b + c
}

// Less returns b − c, at least 0.
func (b Bytes) Less(c Bytes) Bytes {
	if c > b {
		return 0
	}
	return b - c
}

// Times returns b × n, at most Max.
func (b Bytes) Times(n uint64) Bytes {
	if hi, lo := bits.Mul64(uint64(b), n); hi == 0 {
		return Bytes(lo)
	}
	return Max
}

// Human returns b for a sentence: "512 MiB", "1.5 GiB", "17 bytes", "max". A value with a decimal point is rounded down, so that two
// different values may look equal. Files and JSON have exact bytes.
func (b Bytes) Human() string {
	if b == Max {
		return "max"
	}
	units := [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if b < 1024 {
		if b == 1 {
			return "1 byte"
		}
		return strconv.FormatUint(uint64(b), 10) + " bytes"
	}
	i, div := 0, Bytes(1024)
	for b/div >= 1024 {
		div *= 1024
		i++
	}
	text := strconv.FormatUint(uint64(b/div), 10)
	if tenth := b % div / (div / 10); tenth > 0 && b/div < 100 {
		text += "." + strconv.FormatUint(uint64(min(tenth, 9)), 10)
	}
	return text + " " + units[i]
}

// Exact returns b for a sentence without loss: as Human, or "3317760 bytes (3.1 MiB)".
func (b Bytes) Exact() string {
	unit := Bytes(1)
	for b/unit >= 1024 {
		unit *= 1024
	}
	if b == Max || b%unit == 0 {
		return b.Human()
	}
	return strconv.FormatUint(uint64(b), 10) + " bytes (" + b.Human() + ")"
}
