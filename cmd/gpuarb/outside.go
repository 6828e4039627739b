package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ids are those of whoever starts a program.
type ids struct {
	uid, gid int
	bound    bool // no-new-privs: no program gives more rights
}

func ourIDs() ids {
	bound, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return ids{uid: os.Getuid(), gid: os.Getgid(), bound: err == nil && bound == 1}
}

// gainsRights says whether the kernel gives a program rights that its user lacks. The
// loader then takes LD_PRELOAD out of its environment, and so the library is neither in
// it nor in what it starts.
func gainsRights(program string, who ids) bool {
	info, err := os.Stat(program)
	if err != nil || who.bound {
		return false
	}
	var at unix.Statfs_t
	if err := unix.Statfs(program, &at); err != nil || at.Flags&unix.ST_NOSUID != 0 {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if info.Mode()&fs.ModeSetuid != 0 && int(owner.Uid) != who.uid ||
		info.Mode()&fs.ModeSetgid != 0 && int(owner.Gid) != who.gid {
		return true
	}
	_, err = unix.Getxattr(program, "security.capability", nil)
	return err == nil && who.uid != 0
}

// everywhere is the loader's list of what it preloads into all programs, these too.
const everywhere = "/etc/ld.so.preload"

// isListed says whether the list has the library.
func isListed(list, library string) bool {
	text, err := os.ReadFile(list)
	return err == nil && strings.Contains(string(text), library)
}

// warnOutside tells that a program will run outside the job that was opened for it.
func (a *app) warnOutside(program string) {
	if gainsRights(program, ourIDs()) && !isListed(everywhere, "libgpuarb.so") {
		name := filepath.Base(program)
		a.say("%s runs with rights that you lack, so that the loader drops the library: neither it nor what it starts is held to any limit; "+
			"put gpuarb run behind it (%s … gpuarb run … -- COMMAND)", name, name)
	}
}
