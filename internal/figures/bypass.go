package figures

// This file says how a process uses a device without the library. The daemon finds it out; messages
// and tables print it.

// Bypass says how a process uses a device without the library, so that no limit holds for the
// process. It is derived from the environment and the mappings of the process. The values are part
// of the wire protocol and of --json: new values may be added, and existing ones keep their
// spelling.
type Bypass string

// The ways to run without the library. Each is a guess from facts about the process.
const (
	BypassUnknown  Bypass = ""                    // its environment cannot be read, or it belongs to no job
	BypassCleared  Bypass = "environment_cleared" // its environment lacks the token of the job
	BypassRemoved  Bypass = "preload_removed"     // its environment has the token but no LD_PRELOAD
	BypassReplaced Bypass = "preload_replaced"    // its LD_PRELOAD does not name the library
	BypassDisabled Bypass = "disabled"            // GPUARB_DISABLE is set
	BypassUnloaded Bypass = "not_loaded"          // its LD_PRELOAD names the library, which is not loaded
	BypassPassed   Bypass = "calls_passed"        // the library is loaded, but the calls did not reach it
)

// bypasses has the reason of each way, which sentences give in parentheses.
var bypasses = map[Bypass]string{
	BypassCleared:  "its environment was cleared",
	BypassRemoved:  "LD_PRELOAD was removed",
	BypassReplaced: "LD_PRELOAD was replaced",
	BypassDisabled: "GPUARB_DISABLE is set",
	BypassUnloaded: "the loader did not load it: a static or set-user-ID program, or the file is not there",
	BypassPassed:   "its calls went past it: a second copy of the driver, or RTLD_DEEPBIND",
}

// Without returns the text after the verb "runs" in a sentence about such a process: "without the
// library (LD_PRELOAD was replaced)".
func (b Bypass) Without() string {
	why, known := bypasses[b]
	switch {
	case !known:
		return "without the library"
	case b == BypassPassed:
		return "past the library (" + why + ")"
	}
	return "without the library (" + why + ")"
}
