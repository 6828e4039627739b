package inventory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnavailable says that the kernel gives no process events here: it needs root
// in the machine's first namespaces.
var ErrUnavailable = errors.New("process events are not available")

// What a message of the kernel's process connector looks like: the header of
// netlink, that of the connector (struct cn_msg), and struct proc_event of
// linux/cn_proc.h.
const (
	connectorProcess = 1 // CN_IDX_PROC and CN_VAL_PROC
	connectorHeader  = 20
	listen           = 1 // PROC_CN_MCAST_LISTEN
	eventExec        = 2 // PROC_EVENT_EXEC
	whatOffset       = unix.SizeofNlMsghdr + connectorHeader
	execOffset       = whatOffset + 16
	execSize         = execOffset + 8 // a thread and its process
)

// watchPause is how long events gather before they are read: a hint may be late,
// and to be woken for each one costs more than all that is done about it.
const watchPause = 20 * time.Millisecond

// Watch calls exec with the id of each process on the machine that did exec, from
// one goroutine at a time, until ctx ends; it then returns nil.
//
// What it tells are hints: they come late, some are lost where exec is slow or the
// machine busy, and the id may be another's by the time that it is handled.
// Without the privilege it returns ErrUnavailable at once.
//
// The kernel has events for every fork and exit of a thread, too. A filter on the
// socket drops them before they wake anybody: a machine that builds software has
// thousands of them a second.
func Watch(ctx context.Context, exec func(pid int)) error {
	fd, err := connect()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return fmt.Errorf("process events: %w", err)
	}
	f := os.NewFile(uintptr(fd), "process events") // it is nonblocking: the runtime's poller waits for it
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	raw, err := f.SyscallConn()
	for err == nil && ctx.Err() == nil {
		if err = readExecs(raw, exec); err == nil {
			select {
			case <-ctx.Done():
			case <-time.After(watchPause):
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("process events: %w", err)
}

// readExecs waits for events and handles those that there are.
func readExecs(raw syscall.RawConn, exec func(pid int)) error {
	buf := make([]byte, 1024) // an event has 76 bytes
	var failed error
	some := false
	err := raw.Read(func(fd uintptr) bool {
		for {
			n, from, err := unix.Recvfrom(int(fd), buf, 0)
			switch {
			case errors.Is(err, unix.EAGAIN):
				return some
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS): // what is lost is lost
			case err != nil:
				failed = os.NewSyscallError("recvfrom", err)
				return true
			default:
				some = true
				if pid, ok := parseExec(buf[:n], from); ok {
					exec(pid)
				}
			}
		}
	})
	return errors.Join(err, failed)
}

// parseExec returns the process of an exec event that the kernel sent.
func parseExec(msg []byte, from unix.Sockaddr) (int, bool) {
	kernel, ok := from.(*unix.SockaddrNetlink)
	if !ok || kernel.Pid != 0 || len(msg) < execSize || binary.NativeEndian.Uint32(msg[whatOffset:]) != eventExec {
		return 0, false
	}
	return int(binary.NativeEndian.Uint32(msg[execOffset+4:])), true
}

// connect opens a socket on which exec events come, and nothing else.
func connect() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := subscribe(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func subscribe(fd int) error {
	// A filter reads numbers as the network writes them.
	exec := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, eventExec))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: whatOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: exec, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: connectorProcess}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	msg := binary.NativeEndian.AppendUint32(nil, unix.SizeofNlMsghdr+connectorHeader+4)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLMSG_DONE)
	msg = append(msg, make([]byte, 10)...)                        // flags, sequence number, port
	msg = binary.NativeEndian.AppendUint32(msg, connectorProcess) // index
	msg = binary.NativeEndian.AppendUint32(msg, connectorProcess) // value
	msg = append(msg, make([]byte, 8)...)                         // sequence number, acknowledgement
	msg = binary.NativeEndian.AppendUint16(msg, 4)
	msg = binary.NativeEndian.AppendUint16(msg, 0)
	msg = binary.NativeEndian.AppendUint32(msg, listen)
	return os.NewSyscallError("sendto", unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}
