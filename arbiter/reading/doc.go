// Package reading learns from a device's own figures what a process takes of it beyond its bytes: what contexts cost, what is
// overhead, and what no call named. It knows no budget and no ledger. The arbiter hands it what each lease uses, at each reading,
// and charges what comes out.
//
// What a process uses beyond its bytes has two parts. Its contexts, the rounding of its blocks, and what it imported are overhead,
// which lowers the capacity. The rest is memory that no call names: modules and their variables, the device heap, local memory.
// That is the process's own doing: it is excess, and charged to its budget.
package reading
