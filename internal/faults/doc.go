// Package faults ends the daemon at places that tests choose. At marks a place between two steps
// that must not be separated, for example of a grant. Only a binary with the build tag "faults"
// ends there. SIGKILL ends it at the place and the time that GPUARB_FAULT names:
//
//	GPUARB_FAULT=grant.granted     the first time
//	GPUARB_FAULT=grant.granted:3   the third time
//
// If GPUARB_BREAK names the place, the daemon panics there, as with a broken invariant. It panics
// once for each byte of the file that GPUARB_BREAKS_LEFT names, also after it has started itself
// again.
//
// In other binaries At is empty. At may be called from any goroutine. The package has neither a
// type nor a lock, and does not restart the daemon. tests/soak uses each place that the source
// names.
package faults
