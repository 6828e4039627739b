// Package accounting is the ledger: it counts which lease holds how many bytes and streams of which device, and checks limits. Its main
// type is [Ledger]. It only computes sums: it does no I/O, has no clock and no goroutine, and does not know CUDA or decide which request
// comes first. It imports no other package of this module.
//
// A lease is charged to a chain of budgets: that of its process, that of its job, and a budget shared by a user or a cgroup. On each
// device, each budget has a memory.min that is reserved for it and a memory.max that it may not exceed. Leases, budgets on a device, and
// the device itself are nodes of one tree. Each node has the sum of each amount: streams, memory, memory that is present on the device,
// and overhead. One function of these sums says whether the node has room. Invariants after every operation:
//
//   - I1: for each lease, the granted bytes are at most the memory.max of every budget above it, or the
//     budget exceeds its limit and its sum only falls.
//   - I2: for each device, the commitment is at most the capacity, or nothing is granted above memory.min.
//     The commitment is the sum over root budgets of what each holds, or its memory.min if that is larger.
//
// Nothing in this package is safe for concurrent use: the daemon's lock guards it.
//
// docs/glossary.md explains the terms.
package accounting
