// Package arbiter is the policy over the ledger: who gets bytes, streams and
// contexts, who is refused and why, whose idle credit is called back for whom, and
// what people are told about it. Which limits there are it asks arbiter/rules.
//
// It is a state machine. Time and events come in as arguments; decisions go out
// as values ([Result], [Event], errors). There is no goroutine, no clock and no
// I/O. The one thing it touches is the memory shared with the clients, through
// [Word], which the daemon implements and tests fake.
//
// Budgets are per device: "25%" is a quarter of each device, "4G" is 4 GiB on each
// device, and an allocation is charged on the device that it is on. A lease charges
// a chain of budgets: its process's, its job's and, where a rule's scope is "user",
// "cgroup" or "rule", one shared with others.
//
//	lease ─ process budget ─ job budget ─ [shared budget] ─ device
//
// Invariants:
//
//   - A limit lowered below what is granted closes the words below it and takes
//     the idle credit back before the call returns. They open again when the sum
//     is within the limit. In between every free, request and tick takes back
//     what was freed.
//   - A refused request moves nothing: idle credit is taken from others only when
//     what there is suffices.
//   - Whatever a client writes into its word, the sums of others stay right. A
//     word that was clamped ([Arbiter.Clamped]) is not believed again: everything
//     granted to that lease counts as used, and nothing is recalled from it.
//
// A request that has to wait becomes a ticket: its outcome names it, and what becomes of
// it comes out of [Arbiter.Decisions]. Waiting requests are in one queue. Each call that may let one of them go on
// ends with an admission cycle (cycle.go), which judges all of them in order against each limit that can refuse them, the
// narrower ones first: their own budgets (no request waits for those), one that is shared, the
// slots of the device, its bytes. A request that waits blocks later ones at the narrowest limit that refuses it. The rules
// are written down a second time, naively, in the tests, and both must decide alike.
//
// An Arbiter is not safe for concurrent use: the daemon's one lock owns it, and
// holds it over the calls to a Word too.
//
// The files can be read from the bottom up: each uses only files that are named before it.
//
//   - Data: types.go, result.go, tally.go, event.go, gauge.go, usercounts.go; books.go has all that is changed.
//   - Facts: device.go, job.go, names.go, record.go, users.go, ticket.go.
//   - Holdings of a lease: lease.go, streams.go, cost.go, headroom.go.
//   - Limits in force, and what waits there: inforce.go, order.go, limit.go, permits.go, watch.go.
//   - Credit taken back, and limits that are exceeded: recall.go, overlimit.go, charge.go.
//   - Slots and what needs them: slots.go, objects.go.
//   - Limits written into the ledger: shares.go, renew.go.
//   - Texts about holders and waiting requests: holders.go, explain.go.
//   - Whether a request fits: evaluate.go. How it stands: notice.go.
//   - Carrying a decision out: queue.go, decision.go, end.go, refuse.go, serve.go, open.go.
//   - The cycle: copy.go, deadlock.go, cycle.go, search.go.
//   - A new request: decide.go.
//   - The daemon's calls: cancel.go, ask.go, devices.go, policy.go, limits.go, claims.go, jobs.go, sessions.go, absent.go, observe.go, reading.go,
//     restore.go, recount.go, query.go, pressure.go, unknowndevice.go, snapshot.go, states.go, tick.go.
//
// docs/glossary.md explains the terms.
package arbiter
