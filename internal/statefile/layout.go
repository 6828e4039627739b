package statefile

// This file has the size of the state file and the header of this version. setaside.go compares the header, file.go
// writes it.

import (
	"bytes"
	"os"
	"strings"
	"unsafe"
)

const (
	jobSize    = unsafe.Sizeof(Job{})
	sessSize   = unsafe.Sizeof(Session{})
	leaseSize  = unsafe.Sizeof(Lease{})
	tickSize   = unsafe.Sizeof(Ticket{})
	limitSize  = unsafe.Sizeof(Limit{})
	threadSize = unsafe.Sizeof(Thread{})
	cgroupSize = unsafe.Sizeof(Cgroup{})
	fileSize   = headerSize + MaxJobs*jobSize + MaxSessions*sessSize + MaxLeases*leaseSize + MaxTickets*tickSize +
		MaxLimits*limitSize + MaxThreads*threadSize + MaxCgroups*cgroupSize
)

// newHeader returns the header of an empty file of this version, without its Magic.
func newHeader() header {
	return header{Version: fileVersion, HeaderSize: headerSize, JobSize: uint32(jobSize),
		SessSize: uint32(sessSize), LeaseSize: uint32(leaseSize), TicketSize: uint32(tickSize), LimitSize: uint32(limitSize),
		ThreadSize: uint32(threadSize), CgroupSize: uint32(cgroupSize), BootID: bootID()}
}

// bootID returns BootID in the form of the headers; zero: it cannot be read.
func bootID() (id [16]byte) {
	copy(id[:], strings.ReplaceAll(BootID(), "-", ""))
	return id
}

// BootID returns the random name of this boot; "": it cannot be read. In a container of systemd-nspawn, a mount over the kernel's file gives
// the container a name of its own. The sandbox of a service hides that mount from the service. A daemon without the sandbox, before or after
// an upgrade, sees it. So that both read the same name, this function reads the file that process 1 sees, if it is allowed to.
func BootID() string {
	const file = "/proc/sys/kernel/random/boot_id"
	text, err := os.ReadFile("/proc/1/root" + file)
	if err != nil {
		text, _ = os.ReadFile(file) // on error the name is empty
	}
	return string(bytes.TrimSpace(text))
}
