package inventory

// This file listens for the kernel's events about processes that call execve. The daemon starts it, because a client
// that becomes another program ends its session.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"syscall"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrUnavailable means that the kernel gives no process events here. They require root in the machine's first
// namespaces, so that a container has none.
var ErrUnavailable = errors.New("process events are not available")

// Offsets in a message of the kernel's process connector: the header of netlink, the header of the connector (struct
// cn_msg), and struct proc_event of linux/cn_proc.h.
const (
	connectorHeader = 20
	whatOffset      = unix.SizeofNlMsghdr + connectorHeader
	execOffset      = whatOffset + 16
	execSize        = execOffset + 8 // the IDs of a thread and of its process
)

// watchPause is the pause between two reads of events. The events are hints and may be late; waking up for each event
// would cost more than handling it.
const watchPause = 20 * time.Millisecond

// WatchExecs calls exec with the PID of each process on the machine that has called execve, from one goroutine at a
// time. It returns nil at the end of ctx.
//
// The calls are hints: they come late, and the PID may belong to another process by then. If exec is slow or the
// machine is busy, the kernel drops events; WatchExecs then calls lost from that goroutine, and the caller must check
// its processes itself.
//
// Without the privilege it returns ErrUnavailable at once. In a PID namespace of its own a process may listen but
// receives nothing. WatchExecs therefore first runs a program, and returns ErrUnavailable if no event comes for it.
//
// The kernel also has events for each fork and each exit of a thread. A filter on the socket drops them before they
// wake this process, because a machine that builds software has thousands of them each second.
func WatchExecs(ctx context.Context, exec func(pid int), lost func()) error {
	fd, err := connect()
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case err != nil:
		return fmt.Errorf("process events: %w", err)
	}
	f := os.NewFile(uintptr(fd), "process events") // nonblocking, so that the runtime's poller waits for it
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	raw, err := f.SyscallConn()
	if err == nil {
		err = receivesOwnExec(ctx, raw, exec, lost)
	}
	for err == nil && ctx.Err() == nil {
		if err = readExecs(raw, exec, lost); err == nil {
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

// receivesOwnExec runs a program and checks that its event comes. The kernel sends the event while the program
// starts, so that it is there when the program has ended. It tries several times, because the kernel drops an event
// if it lacks memory.
func receivesOwnExec(ctx context.Context, raw syscall.RawConn, exec func(pid int), lost func()) error {
	for range 3 {
		program := osexec.CommandContext(ctx, "true")
		program.Env = []string{} // the program needs no variables
		if err := program.Run(); err != nil {
			return nil // this process may not start programs: listen without the check
		}
		received := false
		var failed error
		err := raw.Control(func(fd uintptr) {
			_, failed = receive(fd, func(pid int) {
				received = received || pid == program.ProcessState.Pid()
				exec(pid)
			}, lost)
		})
		if err := errors.Join(err, failed); err != nil || received {
			return err
		}
	}
	return ErrUnavailable
}

// readExecs waits for events and handles all that are there.
func readExecs(raw syscall.RawConn, exec func(pid int), lost func()) error {
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		var some bool
		some, failed = receive(fd, exec, lost)
		return some || failed != nil
	})
	return errors.Join(err, failed)
}

// receive handles the events that are there, and reports whether there were any.
func receive(fd uintptr, exec func(pid int), lost func()) (bool, error) {
	some := false
	buf := make([]byte, 1024) // an event has 76 bytes
	for {
		n, from, err := unix.Recvfrom(int(fd), buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return some, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped events
			lost()
		case err != nil:
			return some, os.NewSyscallError("recvfrom", err)
		default:
			some = true
			if pid, ok := parseExec(buf[:n], from); ok {
				exec(pid)
			}
		}
	}
}

// parseExec returns the process of an exec event from the kernel.
func parseExec(msg []byte, from unix.Sockaddr) (int, bool) {
	kernel, ok := from.(*unix.SockaddrNetlink)
	if !ok || kernel.Pid != 0 || len(msg) < execSize || binary.NativeEndian.Uint32(msg[whatOffset:]) != netlink.PROC_EVENT_EXEC {
		return 0, false
	}
	return int(binary.NativeEndian.Uint32(msg[execOffset+4:])), true
}

// connect opens a socket that receives only exec events. The library subscribes. The reading is done here, because
// the library's monitor parses every event.
func connect() (int, error) {
	s, err := nl.Subscribe(unix.NETLINK_CONNECTOR, netlink.CN_IDX_PROC)
	if err != nil {
		return -1, fmt.Errorf("subscribe: %w", err)
	}
	defer s.Close()
	if err := dropAllButExec(s.GetFd()); err != nil {
		return -1, err
	}
	listen := nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Len: unix.SizeofNlMsghdr, Type: unix.NLMSG_DONE}}
	listen.AddData(nl.NewCnMsg(netlink.CN_IDX_PROC, netlink.CN_VAL_PROC, netlink.PROC_CN_MCAST_LISTEN))
	if err := s.Send(&listen); err != nil {
		return -1, fmt.Errorf("listen: %w", err)
	}
	fd, err := unix.FcntlInt(uintptr(s.GetFd()), unix.F_DUPFD_CLOEXEC, 3)
	return fd, os.NewSyscallError("fcntl", err)
}

// dropAllButExec attaches the filter to the socket.
func dropAllButExec(fd int) error {
	// The filter loads the kind of the event as a big-endian number, but the kernel writes it in the machine's byte order.
	exec := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, netlink.PROC_EVENT_EXEC))
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: whatOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: exec, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: ^uint32(0)},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	return os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program))
}
