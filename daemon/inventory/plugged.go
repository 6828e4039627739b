package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// WatchDevices calls changed, from one goroutine, when the kernel says that a GPU or a driver of one has come, until ctx
// ends; it then returns nil. Its calls are hints: if many messages come at once one call may stand for several, and a
// driver may need seconds more until it works.
func WatchDevices(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("device events: %w", os.NewSyscallError("socket", err))
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("device events: %w", os.NewSyscallError("bind", err))
	}
	f := os.NewFile(uintptr(fd), "device events") // it is nonblocking: the runtime's poller waits for it
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	raw, err := f.SyscallConn()
	buf := make([]byte, 8192) // the kernel's messages have up to 2 KiB of text
	for err == nil && ctx.Err() == nil {
		var failed error
		err = raw.Read(func(fd uintptr) bool {
			n, from, err := unix.Recvfrom(int(fd), buf, 0)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.ENOBUFS): // some are lost
				changed()
			case errors.Is(err, unix.EINTR):
			case err != nil:
				failed = os.NewSyscallError("recvfrom", err)
			case isKernel(from) && bringsDevice(buf[:n]):
				changed()
			}
			return true
		})
		err = errors.Join(err, failed)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("device events: %w", err)
}

func isKernel(from unix.Sockaddr) bool {
	sender, ok := from.(*unix.SockaddrNetlink)
	return ok && sender.Pid == 0
}

// bringsDevice reports whether a message says that something has come that may be a GPU or its driver: "add@/path", and then
// KEY=value, each with a NUL behind it.
func bringsDevice(message []byte) bool {
	values := map[string]string{}
	for _, entry := range bytes.Split(message, []byte{0}) {
		if key, value, ok := strings.Cut(string(entry), "="); ok {
			values[key] = value
		}
	}
	if action := values["ACTION"]; action != "add" && action != "bind" && action != "change" {
		return false
	}
	switch values["SUBSYSTEM"] {
	case "drm", "nvidia":
		return true
	case "pci":
		return strings.HasPrefix(values["PCI_CLASS"], "3") || strings.HasPrefix(values["PCI_CLASS"], "03")
	case "module":
		module := values["DEVPATH"][strings.LastIndex(values["DEVPATH"], "/")+1:]
		return strings.HasPrefix(module, "nvidia") || module == "amdgpu" || module == "xe" || module == "i915"
	}
	return false
}
