package daemon

// This file makes the mount for a daemon that has a mount namespace of its own and no right to mount. systemd's unit runs
// gpuarbd --make-mount before the daemon, with all rights. That process joins the mount namespace of process 1, mounts there, gives
// the descriptor to systemd, and ends. The daemon gets the descriptor beside its socket. When the daemon has ended, the unit runs
// gpuarbd --clear-mount. cmd/gpuarbd calls MakeMount and ClearMount; serve.go sorts the descriptors of systemd.

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpuarb/gpuarb/gpufs"
)

// mountDescriptor is the name of the descriptor at systemd.
const mountDescriptor = "gpuarb-mount"

const (
	storeMount  = "FDSTORE=1\nFDNAME=" + mountDescriptor
	forgetMount = "FDSTOREREMOVE=1\nFDNAME=" + mountDescriptor
)

// MakeMount makes the mount for the daemon that systemd starts next with these options. It does nothing if they name no mount.
func MakeMount(o Options) error {
	p, err := o.resolve()
	if err != nil || p.mount == "" {
		return err
	}
	// If the last daemon ended before it took its descriptor, systemd still has that descriptor. Its mount ends when systemd
	// closes it.
	if err := tellSystemd(forgetMount); err != nil {
		return err
	}
	f, err := gpufs.MakeMount(p.mount)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := tellSystemd(storeMount, int(f.Fd())); err != nil {
		return errors.Join(err, f.Close(), gpufs.ClearMount(p.mount))
	}
	return nil
}

// ClearMount unmounts what a daemon with these options has left.
func ClearMount(o Options) error {
	p, err := o.resolve()
	if err != nil || p.mount == "" {
		return err
	}
	return errors.Join(tellSystemd(forgetMount), gpufs.ClearMount(p.mount))
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

// sortPassed separates the descriptors of systemd: it keeps the mount for later, and returns the sockets. From here on systemd
// has no copy of the mount's descriptor, so that the mount ends with this process.
func (d *Daemon) sortPassed(files []*os.File) (sockets []*os.File) {
	for _, f := range files {
		if f.Name() != mountDescriptor {
			sockets = append(sockets, f)
			continue
		}
		d.notify(forgetMount)
		d.mounted = f
	}
	return sockets
}
