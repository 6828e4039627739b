package daemon

// This file makes the mount for a daemon that has a mount namespace of its own and no right to mount. systemd runs
// gpuarbd --make-mount before the daemon, with all rights. That process joins the mount namespace of process 1, mounts there, gives
// the descriptor to systemd, and ends. The daemon gets the descriptor beside its socket. If that process cannot mount, the daemon
// gets a file with the reason instead. When the daemon has ended, the unit runs gpuarbd --clear-mount. cmd/gpuarbd calls MakeMount
// and ClearMount; serve.go sorts the descriptors of systemd.

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/gpufs"
)

// Names of descriptors at systemd. systemd has one of the two at most.
const (
	mountDescriptor  = "gpuarb-mount"
	reasonDescriptor = "gpuarb-no-mount" // a file that says why there is no mount
)

// Messages to systemd: each is followed by the name of a descriptor.
const (
	store  = "FDSTORE=1\nFDNAME="
	forget = "FDSTOREREMOVE=1\nFDNAME="
)

// longestReason is the most bytes of a reason that a daemon reads.
const longestReason = 4096

// MakeMount makes the mount for the daemon that systemd starts next with these options. It does nothing if they name no mount.
// If it cannot mount, it leaves the reason to that daemon, and returns the reason.
func MakeMount(o Options) error {
	p, err := o.resolve()
	if err != nil || p.mount == "" {
		return err
	}
	// If the last daemon ended before it took its descriptor, systemd still has that descriptor. Its mount ends when systemd
	// closes it.
	if err := forgetAll(); err != nil {
		return err
	}
	f, err := gpufs.MakeMount(p.mount)
	if err != nil {
		return errors.Join(err, leaveReason(err))
	}
	defer f.Close()
	if err := tellSystemd(store+mountDescriptor, int(f.Fd())); err != nil {
		return errors.Join(err, f.Close(), gpufs.ClearMount(p.mount))
	}
	return nil
}

// leaveReason gives systemd a file in memory with the text of err.
func leaveReason(err error) error {
	fd, failed := unix.MemfdCreate(reasonDescriptor, unix.MFD_CLOEXEC)
	if failed != nil {
		return os.NewSyscallError("memfd_create", failed)
	}
	f := os.NewFile(uintptr(fd), reasonDescriptor)
	defer f.Close()
	if _, err := f.WriteString(err.Error()); err != nil {
		return err
	}
	return tellSystemd(store+reasonDescriptor, fd)
}

// readReason returns the text of such a file as an error. The file's offset is at its end, because the writer shares it.
func readReason(f *os.File) error {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, longestReason))
	if err != nil {
		return fmt.Errorf("the reason why systemd's unit could not mount cannot be read: %w", err)
	}
	return errors.New(string(text))
}

// forgetAll makes systemd close both descriptors.
func forgetAll() error {
	return errors.Join(tellSystemd(forget+mountDescriptor), tellSystemd(forget+reasonDescriptor))
}

// ClearMount unmounts what a daemon with these options has left.
func ClearMount(o Options) error {
	p, err := o.resolve()
	if err != nil || p.mount == "" {
		return err
	}
	return errors.Join(forgetAll(), gpufs.ClearMount(p.mount))
}

// tellSystemd sends a message with descriptors to systemd, which handles it before it notices that this process has ended.
func tellSystemd(message string, descriptors ...int) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return errors.New("NOTIFY_SOCKET is not set: only a unit of systemd's with NotifyAccess=exec and FileDescriptorStoreMax=1 may run this")
	}
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(socket)
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	if err := unix.Sendmsg(socket, []byte(message), rights, &unix.SockaddrUnix{Name: path}, 0); err != nil {
		return fmt.Errorf("systemd's socket %s: %w", path, err)
	}
	return nil
}

// sortPassed separates the descriptors of systemd: it keeps the mount for later, or the reason why there is none, and returns the
// sockets. From here on systemd has no copy of the mount's descriptor, so that the mount ends with this process.
func (d *Daemon) sortPassed(files []*os.File) (sockets []*os.File) {
	for _, f := range files {
		switch f.Name() {
		case mountDescriptor:
			d.notify(forget + mountDescriptor)
			d.mounted = f
		case reasonDescriptor:
			d.notify(forget + reasonDescriptor)
			d.notMounted = readReason(f)
			_ = f.Close() // only read
		default:
			sockets = append(sockets, f)
		}
	}
	return sockets
}
