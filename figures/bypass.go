package figures

// Bypass says how a process uses a device past the library, so that no limit holds for the process: as far as its environment
// and its mappings tell. The values are part of the wire protocol and of --json: new values may be added,
// and existing ones keep their spelling.
type Bypass string

// The ways past the library. Each is a guess from what the process shows of itself.
const (
	BypassUnknown  Bypass = ""                    // its environment cannot be read, or it belongs to no job
	BypassCleared  Bypass = "environment_cleared" // it has no token of its job
	BypassRemoved  Bypass = "preload_removed"     // it has the token, and no LD_PRELOAD
	BypassReplaced Bypass = "preload_replaced"    // its LD_PRELOAD does not name the library
	BypassDisabled Bypass = "disabled"            // GPUARB_DISABLE is set
	BypassUnloaded Bypass = "not_loaded"          // its LD_PRELOAD names the library, which is not loaded
	BypassPassed   Bypass = "calls_passed"        // the library is loaded, and the calls did not come to it
)

// bypasses has the reason for each way, as sentences give it in parentheses.
var bypasses = map[Bypass]string{
	BypassCleared:  "its environment was cleared",
	BypassRemoved:  "LD_PRELOAD was removed",
	BypassReplaced: "LD_PRELOAD was replaced",
	BypassDisabled: "GPUARB_DISABLE is set",
	BypassUnloaded: "the loader did not load it: a static or set-user-ID program, or the file is not there",
	BypassPassed:   "its calls went past it: a second copy of the driver, or RTLD_DEEPBIND",
}

// Without returns what follows the verb "runs" in a sentence about a process that runs past the library: "without the
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
