// Package events reads the event history of real daemons by the means of users: cat and tail on the real mount,
// gpuarb events over the socket. Unmodified programs on the simulated driver cause each kind of event. The oracle is what the
// test itself did, and docs/reference/events.schema.json, which every line must match.
package events
