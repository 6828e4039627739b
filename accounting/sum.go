package accounting

import "math/bits"

// sum is a 128-bit total of amounts. Totals of many amounts near 2^64 (a memory.min
// of almost everything, a client's claim at a restart) must neither wrap nor, as a
// saturating 64-bit total would, forget what to give back when one of them goes.
type sum struct{ hi, lo uint64 }

// add returns s + t. 2^64 terms fit.
func (s sum) add(t sum) sum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(s.hi, t.hi, carry)
	return sum{hi, lo}
}

// sub returns s − t. What was never added cannot be taken away: that is a
// broken ledger, and going on would hand out memory that is not there.
func (s sum) sub(t sum) sum {
	lo, borrow := bits.Sub64(s.lo, t.lo, 0)
	hi, borrow := bits.Sub64(s.hi, t.hi, borrow)
	if borrow != 0 {
		panic("accounting: a sum fell below zero")
	}
	return sum{hi, lo}
}

// less reports s < t.
func (s sum) less(t sum) bool {
	return s.hi < t.hi || s.hi == t.hi && s.lo < t.lo
}

// over returns s − t, or nothing where t is the larger one.
func (s sum) over(t sum) sum {
	if s.less(t) {
		return sum{}
	}
	return s.sub(t)
}

// bytes returns s, or Max where s is larger than that.
func (s sum) bytes() Bytes {
	if s.hi != 0 {
		return Max
	}
	return Bytes(s.lo)
}

// of returns b as a sum.
func of(b Bytes) sum { return sum{lo: uint64(b)} }

// larger returns the larger one of two sums.
func larger(s, t sum) sum {
	if s.less(t) {
		return t
	}
	return s
}
