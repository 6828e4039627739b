package statefile

// This file has a table of records in a mapping, with its used and free records. file.go has all tables.

import (
	"errors"
	"slices"
	"sync/atomic"
	"unsafe"
)

// ErrFull says that a table has no free record.
var ErrFull = errors.New("statefile: table full")

// record is the type of the records of a table. The first field is Live: 1 in a committed record, 0 in a free one.
type record interface {
	Job | Session | Lease | Ticket | Limit | Thread | Cgroup | Binding | Suspension | Wall
}

// live returns the Live field of a record.
func live[T record](row *T) *uint32 { return (*uint32)(unsafe.Pointer(row)) }

// table is an array of records.
type table[T record] struct {
	rows []T
	high *uint32 // in the file's header: records from this index on were never used, and a start does not read them
	free []int   // free records below high; the last freed record is used first
}

// lay sets up a table of most records at an offset of the mapping, finds the free records below high, and returns the
// offset after the table. The header was checked before, except high, which lay limits to the table.
func (t *table[T]) lay(file *mapping, at uintptr, most int, high *uint32) uintptr {
	t.rows = unsafe.Slice((*T)(unsafe.Pointer(&file.mem[at])), most)
	t.high = high
	*high = min(*high, uint32(most))
	for i := int(*high) - 1; i >= 0; i-- {
		if *live(&t.rows[i]) != 1 { // 0, or damaged
			t.free = append(t.free, i)
		}
	}
	return at + uintptr(most)*unsafe.Sizeof(t.rows[0])
}

// New allocates a free record, zeroed, and returns its index, or ErrFull. The record is not live before Commit, so
// that a daemon killed in between leaves no record.
func (t *table[T]) New() (int, *T, error) {
	var i int
	switch n := len(t.free); {
	case n > 0:
		i, t.free = t.free[n-1], t.free[:n-1]
	case int(*t.high) < len(t.rows):
		i = int(*t.high)
		atomic.StoreUint32(t.high, uint32(i+1))
	default:
		return 0, nil, ErrFull
	}
	var zero T
	t.rows[i] = zero
	return i, &t.rows[i], nil
}

// Commit makes a record live.
func (t *table[T]) Commit(i int) { atomic.StoreUint32(live(&t.rows[i]), 1) }

// Free frees a record that New returned, committed or not.
func (t *table[T]) Free(i int) {
	atomic.StoreUint32(live(&t.rows[i]), 0)
	t.free = append(t.free, i)
}

// Reserve allocates the first free record for which fits returns true, with the content that it had when it was freed
// or was not yet committed. It returns the index; -1: there is none.
func (t *table[T]) Reserve(fits func(row *T) bool) int {
	n := slices.IndexFunc(t.free, func(i int) bool { return fits(&t.rows[i]) })
	if n < 0 {
		return n
	}
	i := t.free[n]
	t.free = slices.Delete(t.free, n, n+1)
	return i
}

// At returns the record at an index that New returned.
func (t *table[T]) At(i int) *T { return &t.rows[i] }

// Each calls f for every live record in index order.
func (t *table[T]) Each(f func(i int, row *T)) {
	for i := range t.rows[:*t.high] {
		if row := &t.rows[i]; *live(row) == 1 {
			f(i, row)
		}
	}
}
