package reading

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
)

// This file has the measured costs of contexts. process.go records them, and cost.go of package arbiter reads them.

// Costs are the measured costs of contexts on a device.
type Costs struct {
	// least is the smallest cost of a context of each user's programs. A client can make its own cost look too small, if it takes credit
	// and allocates nothing. So the cost of one user is not used for another.
	least  map[uint32]accounting.Bytes
	latest [3]cost // costs of the last programs, the newest first
}

// cost is the cost of each context of a lease.
type cost struct {
	lease uint64
	bytes accounting.Bytes
}

// maxLeast is the largest number of users in Costs.least.
const maxLeast = 4096

// Expected returns the expected cost of the next context: the largest of the last three programs. 0: none was measured yet.
func (c *Costs) Expected() (most accounting.Bytes) {
	for _, x := range c.latest {
		most = max(most, x.bytes)
	}
	return most
}

// leastOf returns the smallest cost of a context of a user's program; unknown if none was measured, or if unknown is smaller.
func (c *Costs) leastOf(uid uint32, unknown accounting.Bytes) accounting.Bytes {
	if least, known := c.least[uid]; known {
		return min(least, unknown)
	}
	return unknown
}

// remember records the cost of each context of a lease's process.
func (c *Costs) remember(lease uint64, bytes accounting.Bytes) {
	at := slices.IndexFunc(c.latest[:], func(x cost) bool { return x.lease == lease })
	if at < 0 {
		at = len(c.latest) - 1
	}
	copy(c.latest[1:at+1], c.latest[:at])
	c.latest[0] = cost{lease, bytes}
}

// lower records a cost of a context of a user's program, if it is the smallest yet.
func (c *Costs) lower(uid uint32, bytes accounting.Bytes) {
	was, known := c.least[uid]
	if known && was <= bytes || !known && len(c.least) >= maxLeast {
		return
	}
	if c.least == nil {
		c.least = make(map[uint32]accounting.Bytes)
	}
	c.least[uid] = bytes
}
