// Package wording has the sentences of the arbiter: messages, notices and events for users, and the names of programs, users and jobs in
// them. Callers fill in the facts. It has no state.
package wording
