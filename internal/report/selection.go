package report

// This file chooses the rows of a table. leases.go, holders.go, queue.go and budgets.go call it for
// the tables and the JSON of `gpuarb ps`, `jobs` and `queue`. order.go sorts the rows.

import "slices"

// Selection is the rows that a table shows, and their order. The zero Selection is all rows in the
// order of the table.
type Selection struct {
	// UID is the user of the rows; nil: all users.
	UID *uint32
	// Devices are the indices of the devices of the rows; nil: all devices. A request that waits for
	// any of several devices belongs to each of them.
	Devices []int
	// IdleMs is the least time in ms for which the rows have done nothing; 0: rows that do something
	// too. A request does nothing while it waits.
	IdleMs int64
	// Sort is the name of a column in lower or upper case; "": the order of the table. With a minus
	// in front, the order is the other way round.
	Sort string
}

// ofUser reports whether the rows of a user are shown. known is false for a process whose user is
// not known.
func (sel *Selection) ofUser(uid uint32, known bool) bool {
	return sel.UID == nil || known && uid == *sel.UID
}

// onDevice reports whether the rows of a device are shown.
func (sel *Selection) onDevice(index int) bool {
	return sel.Devices == nil || slices.Contains(sel.Devices, index)
}

// idle reports whether a row is shown that has done nothing for a time.
func (sel *Selection) idle(ms int64) bool { return ms >= sel.IdleMs }
