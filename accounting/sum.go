package accounting

import (
	"cmp"
	"math/bits"
)

// Sum is a 128-bit total of amounts. Totals of many amounts near 2^64 (a memory.min
// of almost everything, a client's claim at a restart) must neither wrap nor, as a
// saturating 64-bit total would, forget what to give back when one of them goes.
type Sum struct{ hi, lo uint64 }

// Add returns s + t. 2^64 terms fit.
func (s Sum) Add(t Sum) Sum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(s.hi, t.hi, carry)
	return Sum{hi, lo}
}

// Sub returns s − t. What was never added cannot be taken away: that is a
// broken ledger, and going on would hand out memory that is not there.
func (s Sum) Sub(t Sum) Sum {
	lo, borrow := bits.Sub64(s.lo, t.lo, 0)
	hi, borrow := bits.Sub64(s.hi, t.hi, borrow)
	if borrow != 0 {
		panic("accounting: a sum fell below zero")
	}
	return Sum{hi, lo}
}

// Compare returns a number below 0 where s is less than t, 0 where it is the same, and one above 0.
func (s Sum) Compare(t Sum) int {
	return cmp.Or(cmp.Compare(s.hi, t.hi), cmp.Compare(s.lo, t.lo))
}

func (s Sum) less(t Sum) bool {
	return s.hi < t.hi || s.hi == t.hi && s.lo < t.lo
}

// over returns s − t, or nothing where t is the larger one.
func (s Sum) over(t Sum) Sum {
	if s.less(t) {
		return Sum{}
	}
	return s.Sub(t)
}

// bytes returns s, or Max where s is larger than that.
func (s Sum) bytes() Bytes {
	if s.hi != 0 {
		return Max
	}
	return Bytes(s.lo)
}

// SumOf returns b as a sum.
func SumOf(b Bytes) Sum { return Sum{lo: uint64(b)} }

// larger returns the larger one of two sums.
func larger(s, t Sum) Sum {
	if s.less(t) {
		return t
	}
	return s
}
