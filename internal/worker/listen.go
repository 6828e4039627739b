package worker

// This file opens and closes the listening socket. keeper.go calls it.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gpuarb/gpuarb/ipc"
	"golang.org/x/sys/unix"
)

// Wanted says where a worker listens, and with which settings. The zero value means that there is no worker. A new worker is started for each change.
type Wanted struct {
	Network, Address string // "tcp" with HOST:PORT, or "unix" with a path
	Settings         string // one line of JSON, which the worker reads first from its standard input
}

// listen opens the wanted address.
func listen(w Wanted, mode os.FileMode) (*os.File, error) {
	if w.Network == "unix" {
		return listenUnix(w.Address, mode)
	}
	l, err := net.Listen(w.Network, w.Address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

// listenUnix listens at a path. It removes a socket file that is there if no process listens at it.
func listenUnix(path string, mode os.FileMode) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s exists, and is no socket: remove it, or choose another path", path)
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			conn.Close()
			return nil, fmt.Errorf("another process listens at %s already: end it, or choose another path", path)
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	file, err := l.File()
	if err == nil {
		err = ipc.ChmodSocket(path, mode)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return file, nil
}

// closeListener closes a listener and removes its socket file.
func closeListener(f *os.File, w Wanted) {
	if f == nil {
		return
	}
	f.Close()
	if w.Network == "unix" {
		_ = os.Remove(w.Address)
	}
}

// boundTo returns the address at which a listener can be opened again, with the port if the kernel
// chose it.
func boundTo(f *os.File, w Wanted) string {
	if at := addressOf(f); w.Network != "unix" && at != unknownAddress {
		return at
	}
	return w.Address
}

// unknownAddress is used in messages if the address of a listener cannot be read.
const unknownAddress = "?"

// addressOf returns the address of a listening socket, with the port if the kernel chose it.
func addressOf(f *os.File) string {
	l, err := net.FileListener(f)
	if err != nil {
		return unknownAddress
	}
	defer l.Close()
	if unixListener, ok := l.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false)
	}
	return l.Addr().String()
}
