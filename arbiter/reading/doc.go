// Package reading computes from readings of a device what processes use in addition to the bytes granted to them. Its main types are
// [Extra], which is kept for each lease, and [Process], which is made for each reading. It does not know budgets or the ledger: the arbiter
// passes in what each lease uses, and charges the results. The daemon's lock guards all its data.
//
// The extra usage of a process has two parts. Overhead is its contexts, the rounding of its blocks, and imported memory; it lowers the
// capacity of the device. Excess is memory that no call asked for, such as modules and their variables, the device heap, and local memory.
// The process itself causes excess, so that it is charged to its budget.
//
// After each reading, Excess ≤ Overhead, and both count only as far as two successive readings agree.
package reading
