// Package rules says which rule of the configuration applies to a process, and which limits
// follow: for a job, for each of its processes, for all programs of a user. A limit comes
// from the rule, from what a program was started with, from what somebody changed live, and
// from the device's size; with each goes what it comes from, for people.
//
// It knows nothing of what is held, of who waits, and of the ledger: the arbiter asks which
// limits there are and puts them in force. The configuration builds a [Policy] and
// nothing else here.
package rules
