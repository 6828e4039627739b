package inventory

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

// ErrUnavailable says that the kernel gives no process events here: it needs root
// in the machine's first namespaces, and so not in a container.
var ErrUnavailable = errors.New("process events are not available")

// What a message of the kernel's process connector looks like: the header of
// netlink, that of the connector (struct cn_msg), and struct proc_event of
// linux/cn_proc.h.
const (
	connectorHeader = 20
	whatOffset      = unix.SizeofNlMsghdr + connectorHeader
	execOffset      = whatOffset + 16
	execSize        = execOffset + 8 // a thread and its process
)

// watchPause is how long events gather before they are read: a hint may be late,
// and to be woken for each one costs more than all that is done about it.
const watchPause = 20 * time.Millisecond

// Watch calls exec with the id of each process on the machine that did exec, from
// one goroutine at a time, until ctx ends; it then returns nil.
//
// What it tells are hints: they come late, and the id may be another's by the time that it
// is handled. Where exec is slow or the machine busy some are lost; lost is called then,
// from the same goroutine, and who wants to know looks for himself.
// Without the privilege it returns ErrUnavailable at once. In a PID namespace of
// its own it may listen and hears nothing; so it first runs a program itself, and
// returns ErrUnavailable when there was no event of that.
//
// The kernel has events for every fork and exit of a thread, too. A filter on the
// socket drops them before they wake anybody: a machine that builds software has
// thousands of them a second.
func Watch(ctx context.Context, exec func(pid int), lost func()) error {
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
	if err == nil {
		err = hearsOwn(ctx, raw, exec, lost)
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

// hearsOwn runs a program and looks whether its event came: the kernel sends it while
// the program starts, so that it is here when the program has ended. One that the
// kernel had no memory for may be missing, hence more than one try.
func hearsOwn(ctx context.Context, raw syscall.RawConn, exec func(pid int), lost func()) error {
	for range 3 {
		program := osexec.CommandContext(ctx, "true")
		program.Env = []string{} // nothing of ours concerns it
		if err := program.Run(); err != nil {
			return nil // whoever may start nothing cannot tell, and listens
		}
		heard := false
		var failed error
		err := raw.Control(func(fd uintptr) {
			_, failed = receive(fd, func(pid int) {
				heard = heard || pid == program.ProcessState.Pid()
				exec(pid)
			}, lost)
		})
		if err := errors.Join(err, failed); err != nil || heard {
			return err
		}
	}
	return ErrUnavailable
}

// readExecs waits for events and handles those that there are.
func readExecs(raw syscall.RawConn, exec func(pid int), lost func()) error {
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		var some bool
		some, failed = receive(fd, exec, lost)
		return some || failed != nil
	})
	return errors.Join(err, failed)
}

// receive handles the events that there are, and says whether there were some.
func receive(fd uintptr, exec func(pid int), lost func()) (bool, error) {
	some := false
	buf := make([]byte, 1024) // an event has 76 bytes
	for {
		n, from, err := unix.Recvfrom(int(fd), buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return some, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS): // the kernel had no room for some
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

// parseExec returns the process of an exec event that the kernel sent.
func parseExec(msg []byte, from unix.Sockaddr) (int, bool) {
	kernel, ok := from.(*unix.SockaddrNetlink)
	if !ok || kernel.Pid != 0 || len(msg) < execSize || binary.NativeEndian.Uint32(msg[whatOffset:]) != netlink.PROC_EVENT_EXEC {
		return 0, false
	}
	return int(binary.NativeEndian.Uint32(msg[execOffset+4:])), true
}

// connect opens a socket on which exec events come, and nothing else. The library
// subscribes; the reading is our own, because its monitor parses every event.
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

// dropAllButExec puts the filter on the socket.
func dropAllButExec(fd int) error {
	// A filter reads numbers as the network writes them.
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
