// Package events reads the event history of real daemons, with what users read it by: cat and tail on the real mount,
// gpuarb events over the socket. Each kind of event is brought about by unmodified programs on the simulated driver, and each
// line that is written meanwhile is held against docs/reference/events.schema.json.
package events
