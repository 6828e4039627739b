package daemon

// This file finds the lease pages of processes through /proc, and opens them again. savedprocesses.go and resume.go
// call it for recovery, reclaim.go for processes that share a page. session.go has the page's session.

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// findPage opens a live process's page again: through a descriptor that the process still has, or through its
// mapping, which only root may open. nil: neither works.
func findPage(pid int, id ipc.PageID) *ipc.LeasePage {
	return firstPage(pid, &id, unix.O_RDWR, func(fd int) *ipc.LeasePage { return openPage(fd, id) })
}

// pageOf reads the page that a client sent, or a page that the client still has open. nil: there is none.
func pageOf(pid, fd int) *ipc.Page {
	if page, err := ipc.ReadPage(fd); err == nil {
		return page
	}
	return firstPage(pid, nil, unix.O_RDONLY|unix.O_NONBLOCK, func(fd int) *ipc.Page {
		defer closeFD(fd)
		page, err := ipc.ReadPage(fd)
		if err != nil || page.Ended != 0 {
			return nil
		}
		return page
	})
}

// firstPage returns the first value that take makes of a process's pages; nil: none. take owns the descriptor. Mappings
// are tried only if no descriptor leads to a page: reading them blocks if the process hangs while it holds its
// address space.
func firstPage[T any](pid int, id *ipc.PageID, flags int, take func(fd int) *T) *T {
	for _, folder := range []string{"fd", "map_files"} {
		for _, path := range pageLinks(pid, id, folder) {
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			if taken := take(fd); taken != nil {
				return taken
			}
		}
	}
	return nil
}

// pageLinks lists the links in a folder of a process that lead to the page with this identity, or to any page.
func pageLinks(pid int, id *ipc.PageID, folder string) (paths []string) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), procfacts.Here.LivingThread(pid), folder)
	entries, _ := os.ReadDir(dir) // errors: the entries so far are enough
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, "memfd:"+ipc.PageName) {
			continue
		}
		var st unix.Stat_t
		if id == nil || unix.Stat(path, &st) == nil && st.Ino == id.Ino {
			paths = append(paths, path)
		}
	}
	return paths
}

// openPage maps a page that a daemon made, and marks in it that its session continues. nil: it is not such a page,
// and fd is closed.
func openPage(fd int, id ipc.PageID) *ipc.LeasePage {
	page, err := ipc.OpenPage(fd, id)
	if err != nil {
		closeFD(fd)
		return nil
	}
	if err := page.Guard(func() { page.Ended().Store(0) }); err != nil {
		_ = page.Close()
		return nil
	}
	return page
}
