package worker

import (
	"os"
	"syscall"
	"time"
)

// This file has the description of a worker, which the daemon gives to a Keeper.

// Job says what the worker of a Keeper does, and as which user.
type Job struct {
	Command  string // first argument of the worker's gpuarbd. Users do not use it, because the process expects a socket and settings.
	User     string // user that systemd-sysusers creates for the worker of root's daemon
	Fallback uint32 // UID and GID if User does not exist; 0: those of the user nobody
	Connects bool   // the worker connects to the daemon's socket
	Spare    bool   // programs do not need the worker; its failure is logged as a warning instead of an error
	LogsOnce bool   // a failure is logged again only if its reason changes
	Drains   bool   // when the daemon dies, the worker reads its standard input to the end, and then ends by itself
	// Pause is the time before the first restart of a worker that has failed; 0: half a second. It doubles with each further restart.
	Pause  time.Duration
	Done   string // for the log: "the page is served"
	Failed string // for the log: "the page is not served"

	// Prepare is called before each start, with the user of the worker; nil: not called. credential is nil if the worker runs as the
	// daemon's own user.
	Prepare func(credential *syscall.Credential) error
	// Started gets the write end of the standard input of a worker that was just started. Ended is called when that worker has ended. nil: not
	// called.
	Started func(stdin *os.File)
	Ended   func()
	// Trouble is called with the reason if a worker cannot be started or has failed; nil: not called.
	Trouble func(err error)
	// Heard gets each piece that is read from the worker's standard output, and returns whether the worker serves, as far as its output says. nil:
	// the worker serves once it has written something. All output also counts as a heartbeat.
	Heard func(output []byte) (serves bool)
}
