// Package wording has the sentences of the arbiter: messages, notices and events for users, and the names of programs, users and jobs in
// them. Callers fill in the facts. The main type is [Use], the usage of a device in the account of a job; the rest are constants and
// functions. It has no state and needs no lock, and decides nothing.
package wording
