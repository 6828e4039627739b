package worker

// This file has what the daemon and the page's process (package web) agree on.

// PageCommand is the first argument of a gpuarbd that serves the page. Users do not call it: the process expects the listening socket and
// its settings.
const PageCommand = "serve-http"

// PageSettings are the settings of the page's process.
type PageSettings struct {
	Socket string   `json:"socket"` // path of the daemon's socket
	Hosts  []string `json:"hosts"`  // further host names that browsers may use
	// Commands says whose command lines are shown. The process remembers what it was shown, so that each change of this field needs a new
	// process.
	Commands string `json:"commands"`
}
