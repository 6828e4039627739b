package worker

import (
	"os"
	"syscall"
	"time"
)

// This file has the description of a worker, which the daemon gives to a Keeper.

// Job says what the worker of a Keeper does, and as which user.
type Job struct {
	Command  string // first argument of the worker's gpuarbd. Users do not call it: the process expects the socket and its settings.
	User     string // user that systemd-sysusers creates for the worker of root's daemon
	Fallback uint32 // UID and GID if that user does not exist; 0: nobody's
	Connects bool   // the worker connects to the daemon's socket
	Spare    bool   // programs do not need the worker: a failure is a warning
	LogsOnce bool   // a failure is logged again only if its reason changes
	Drains   bool   // when the daemon dies, the worker reads its standard input to the end, and then ends by itself
	// Pause is the time before a worker that has failed is started again, the first time; 0: half a second. It doubles each time.
	Pause  time.Duration
	Done   string // for the log: "the page is served"
	Failed string // for the log: "the page is not served"

	// Prepare is called before each start, with the user of the worker; nil: it is not called. credential is nil if the worker runs as the
	// daemon's own user.
	Prepare func(credential *syscall.Credential) error
	// Started gets the standard input of a worker that was started, and Ended is called when that worker has ended; nil: not called.
	Started func(stdin *os.File)
	Ended   func()
	// Trouble gets the reason each time that a worker cannot be started or has failed; nil: not called.
	Trouble func(err error)
	// Heard gets what the worker writes to its standard output; nil: nothing. All output also counts as a heartbeat.
	Heard func(output []byte)
}
