package arbiter

import (
	"math"

	"github.com/gpuarb/gpuarb/accounting"
)

// Used is what each lease on a device uses, for Usage.UsedBefore.
func (a *Arbiter) Used(device int) map[LeaseID]accounting.Bytes {
	r := a.Reading(device)
	r.Note(math.MaxInt)
	return r.used
}

// Looked is how often a ticket was looked at so far.
func (a *Arbiter) Looked() uint64 { return a.looked }

// SearchInParts has every search for circles made beside the lock, on a copy of one ticket at a time.
func (a *Arbiter) SearchInParts() { a.atOnce = 0 }
