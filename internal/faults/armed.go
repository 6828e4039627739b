//go:build faults

package faults

// This file has At for binaries with the build tag "faults", which the crash tests run. The
// daemon, package shim and package statefile call At at each place. none.go has At for all other
// binaries.

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

var (
	place, which = armed(os.Getenv("GPUARB_FAULT"))
	times        atomic.Int64
	breaks, left = os.Getenv("GPUARB_BREAK"), os.Getenv("GPUARB_BREAKS_LEFT")
)

// armed reads the variable: the name of a place, and which time is meant.
func armed(text string) (string, int64) {
	name, count, found := strings.Cut(text, ":")
	if n, err := strconv.ParseInt(count, 10, 64); found && err == nil && n > 0 {
		return name, n
	}
	return name, 1
}

// At ends the process or panics, if name is the place in the environment and this is the time.
func At(name string) {
	if name == breaks && takeOne(left) {
		panic("faults: broken at " + name)
	}
	if name != place || times.Add(1) != which {
		return
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// takeOne shortens a file by a byte. It returns false if the file is empty or missing.
func takeOne(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Size() > 0 && os.Truncate(path, st.Size()-1) == nil
}
