package bounded

import (
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// This file resets what the tests inherit from their parent process: signals, umask and environment. It runs once, at the start of each test binary.

// longestTemp is the longest usable name of the folder for temporary files, in bytes. A socket's
// path has at most 107 bytes, and a test's own folder and file take up to 80 of them.
const longestTemp = 24

// init sets what tests inherit from their parent process to the values of a login shell, so that
// no test depends on it. A test binary that is started again as another program, without
// go test's flags, keeps its environment.
func init() {
	if slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.") }) {
		inheritNoIgnoredSignals()
		inheritNoService()
		inheritNoLongTemp()
		unix.Umask(0o022) // tests hand files to other users; TestUmask runs the daemon with other masks
	}
}

// inheritNoIgnoredSignals makes the programs that a test starts begin with default signal
// dispositions. nohup ignores SIGHUP, and a shell without job control ignores SIGINT for programs in
// its background; exec keeps ignored signals ignored. A signal with a handler is reset to its default by
// exec, so this function installs handlers for both. Go's runtime has handlers for all other signals.
func inheritNoIgnoredSignals() {
	for _, sig := range []os.Signal{unix.SIGHUP, unix.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // this process still ignores the signal
		}
	}
}

// inheritNoService removes the variables by which systemd talks to a service, in which the tests may run. They are not
// for the programs that the tests start.
func inheritNoService() {
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID", "WATCHDOG_USEC", "NOTIFY_SOCKET"} {
		_ = os.Unsetenv(name)
	}
}

// inheritNoLongTemp moves temporary files to /tmp if the path of a socket would become too long.
func inheritNoLongTemp() {
	if len(os.TempDir()) > longestTemp {
		_ = os.Setenv("TMPDIR", "/tmp") // if this fails, making a socket fails with a clear message
	}
}
