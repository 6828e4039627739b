package daemon

import (
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// runAsBatch has the kernel take the processor from nobody for the daemon's sake when something comes for it
// (SCHED_BATCH). A program that asks is about to wait for the answer, and leaves the processor to the daemon a moment
// later by itself; where many ask at once they are then answered in one go. A policy that
// somebody has chosen stays; a kernel that forbids the change costs no more than time.
func runAsBatch() {
	for again := true; again; { // a thread may have begun another meanwhile, which is as it was itself
		again = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range threads {
			tid, _ := strconv.Atoi(t.Name())
			if has, _, err := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0); err != 0 || has != unix.SCHED_NORMAL {
				continue
			}
			// Not by sched_setattr, which sets the nice value, too, and is what a unit with RestrictRealtime= may forbid.
			var priority int32 // none
			_, _, err := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), unix.SCHED_BATCH, uintptr(unsafe.Pointer(&priority)))
			again = err == 0 || again
		}
	}
}
