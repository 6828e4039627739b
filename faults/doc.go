// Package faults has the daemon die where its tests say: At names a place between two steps
// of what must be whole, a grant, say. It does so in a binary that was built with the tag
// "faults" alone, by SIGKILL, at the place and the time that GPUARB_FAULT names:
//
//	GPUARB_FAULT=grant.granted     the first time that it comes there
//	GPUARB_FAULT=grant.granted:3   the third time
//
// It panics there, as a broken invariant does, if GPUARB_BREAK names the place: once for each byte of the file that
// GPUARB_BREAKS_LEFT names, also in a daemon that has started itself again.
//
// Everywhere else At is empty, and nothing of it is in the binary. tests/soak goes to each
// place that the source names.
package faults
