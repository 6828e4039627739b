package statefile

// This file has the size of the state file and the header of this version. setaside.go compares the header, file.go
// writes it.

import (
	"bytes"
	"os"
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

// bootID returns the kernel's random name for this boot; zero: it cannot be read.
func bootID() (id [16]byte) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id
	}
	copy(id[:], bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil))
	return id
}
