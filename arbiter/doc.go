// Package arbiter decides which requests for GPU memory, streams, contexts and slots are granted, which wait, and which are refused. Its
// main type is [Arbiter]: the ledger of package accounting, the policy of package arbiter/rules, and the queue of waiting requests.
//
// An Arbiter is a state machine. Times and events are arguments; decisions are return values ([Result], [Event], errors). It starts no
// goroutine, reads no clock and does no I/O. Its one side effect is [CreditWord]: during a call, the arbiter changes the lease page that a
// client shares with the daemon, and the lease's record in the state file. Package shim implements CreditWord, and tests have a fake.
//
// Budgets are per device: "25%" is a quarter of each device, and "4G" is 4 GiB on each device. An allocation is charged on the device that
// holds it. A lease is charged to a chain of budgets: that of its process, that of its job and, if the rule's scope is "user", "cgroup" or
// "rule", a budget shared with other jobs.
//
//	lease ─ process budget ─ job budget ─ [shared budget] ─ device
//
// Invariants:
//
//   - If a limit is lowered below what is granted, the call closes the credit words below the limit
//     and recalls their idle credit before it returns. The words open again when the sum is within the
//     limit. Until then each free, request and tick recalls what was freed.
//   - A refused request moves no credit. Idle credit of other leases is recalled only if it makes
//     enough room.
//   - A client can write anything into its credit word; the sums of other leases stay right. After a
//     word was clamped ([Arbiter.Clamped]), everything granted to its lease counts as used, and nothing
//     is recalled from it.
//
// A request that has to wait becomes a ticket. The result of the call has the ticket's ID, and [Arbiter.Decisions] returns the decision
// later. All tickets are in one queue. Each call that may let a ticket be served ends with an admission cycle (cycle.go). The cycle
// evaluates the tickets in order. It checks the narrower limits first: the lease's own budgets (for which no request waits), shared
// budgets, the slots of the device, and the bytes of the device. A waiting ticket blocks later tickets at the narrowest limit that refuses
// it. The tests have a second, naive implementation of these rules, and both must decide alike.
//
// An Arbiter is not safe for concurrent use. The daemon's lock guards it, and is held during calls to a CreditWord too. Only [Search.Run]
// and [Reading.Figures] run without the lock.
//
// The package does not find devices, read their usage, authenticate clients or store anything: the daemon does that.
//
// The files can be read in this order. Each file uses only files before it.
//
//   - Data: types.go, result.go, tally.go, event.go, gauge.go, usercounts.go, and state.go, which has all state that changes.
//   - Lookups: device.go, job.go, names.go, record.go, users.go, ticket.go.
//   - Sums over time for the history: integrate.go.
//   - Holdings of a lease: lease.go, streams.go, cost.go, headroom.go, use.go.
//   - Limits in force, and the tickets that wait at them: inforce.go, order.go, limit.go, permits.go, watch.go.
//   - Recalled credit, and exceeded limits: recall.go, overlimit.go, charge.go.
//   - Slots, and the objects that need them: slots.go, objects.go.
//   - Accounts of jobs for the history: accounts.go.
//   - Limits written to the ledger: shares.go, hidden.go, renew.go, inside.go.
//   - Texts about holders and tickets: holders.go, emptiest.go, explain.go.
//   - Evaluation of a request: evaluate.go. Notices to waiting clients: notice.go.
//   - Carrying out a decision: queue.go, decision.go, end.go, refuse.go, serve.go, open.go.
//   - The admission cycle: copy.go, deadlock.go, cycle.go, search.go.
//   - A new request: decide.go.
//   - Jobs that give their memory back and return: suspend.go, suspendevents.go. The choice of those that make room: evict.go.
//   - Calls of the daemon: cancel.go, ask.go, devices.go, policy.go, limits.go, claims.go, jobs.go, sessions.go, absent.go,
//     observe.go, reading.go, restore.go, suspensions.go, recount.go, query.go, pressure.go, unknowndevice.go, warn.go,
//     snapshotrows.go, snapshot.go, tick.go.
//
// docs/glossary.md explains the terms.
package arbiter
