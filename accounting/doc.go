// Package accounting is the ledger: devices, budgets, leases, and who holds how
// many bytes of what. It is pure sums: no I/O, no clock, no goroutine, no policy
// of who should get what, and no word of CUDA. It imports nothing of this module.
//
// A lease charges a chain of budgets (its process's, its job's, one shared by a
// user or a cgroup); each budget has, on each device, a memory.min that is
// reserved for it and a memory.max that it may not pass. Leases, budgets on a device
// and the device are nodes of one tree; a node sums up each amount (bytes, streams), and
// whether it has room is one function of its sums. The invariants that hold after every
// operation:
//
//   - I1: per lease, granted ≤ memory.max of every budget above it, or the
//     budget is over and its sum only falls;
//   - I2: per device, the commitment (for each root budget the larger of what it
//     holds and its memory.min) ≤ capacity, or nothing is granted beyond memory.min.
//
// Nothing here is safe for concurrent use: the daemon's one lock owns it.
//
// docs/glossary.md explains the terms.
package accounting
