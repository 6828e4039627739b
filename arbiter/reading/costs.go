package reading

import (
	"slices"

	"github.com/gpuarb/gpuarb/accounting"
)

// Costs is what contexts were seen to cost on a device.
type Costs struct {
	// least is the least that one cost of each user's programs. A client can make its
	// own figure too small (it takes credit and allocates nothing), so that one user's
	// never counts against another.
	least  map[uint32]accounting.Bytes
	latest [3]cost // of the last programs, the newest first
}

// cost is what each context of a lease costs.
type cost struct {
	lease uint64
	bytes accounting.Bytes
}

// maxLeast is the most users of whom the least is remembered.
const maxLeast = 4096

// Expected is what the next context is expected to cost: the most that one of the last three
// programs cost. 0: none was seen yet.
func (c *Costs) Expected() (most accounting.Bytes) {
	for _, x := range c.latest {
		most = max(most, x.bytes)
	}
	return most
}

// leastOf is what each context of a user's program costs at least; unknown where none was seen.
func (c *Costs) leastOf(uid uint32, unknown accounting.Bytes) accounting.Bytes {
	if least, known := c.least[uid]; known {
		return min(least, unknown)
	}
	return unknown
}

// remember notes what each context of a lease's process costs.
func (c *Costs) remember(lease uint64, bytes accounting.Bytes) {
	at := slices.IndexFunc(c.latest[:], func(x cost) bool { return x.lease == lease })
	if at < 0 {
		at = len(c.latest) - 1
	}
	copy(c.latest[1:at+1], c.latest[:at])
	c.latest[0] = cost{lease, bytes}
}

// lower notes the least that a context of a user's program cost.
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
