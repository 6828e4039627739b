package inventory

// This file listens for the kernel's messages about new devices and drivers. The daemon starts it and calls Scan
// (scan.go) after a message.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// WatchDevices calls changed, from one goroutine, after a kernel message that a GPU or a driver has come. It returns
// nil at the end of ctx. The calls are hints: several messages may give one call, and a driver may need more seconds
// until it works.
func WatchDevices(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("device events: %w", os.NewSyscallError("socket", err))
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("device events: %w", os.NewSyscallError("bind", err))
	}
	f := os.NewFile(uintptr(fd), "device events") // nonblocking, so that the runtime's poller waits for it
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
			case errors.Is(err, unix.ENOBUFS): // the kernel dropped messages
				changed()
			case errors.Is(err, unix.EINTR):
			case err != nil:
				failed = os.NewSyscallError("recvfrom", err)
			case isKernel(from) && announcesDevice(buf[:n]):
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

// isKernel reports whether the kernel sent a message.
func isKernel(from unix.Sockaddr) bool {
	sender, ok := from.(*unix.SockaddrNetlink)
	return ok && sender.Pid == 0
}

// announcesDevice reports whether a message announces a GPU or a driver of one. A message is "add@/path" and then
// KEY=value pairs, each with a NUL after it.
func announcesDevice(message []byte) bool {
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
