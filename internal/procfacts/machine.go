package procfacts

// This file reads facts about the machine: its processor and its memory. daemon and daemon/inventory call it.

import "github.com/prometheus/procfs"

// Processor returns the kernel's name of the machine's processor; empty: unknown, as on most ARM machines.
func (r Root) Processor() string {
	all, err := procfs.NewFS(string(r))
	if err != nil {
		return ""
	}
	cores, err := all.CPUInfo()
	if err != nil || len(cores) == 0 {
		return ""
	}
	return cores[0].ModelName
}

// MemTotal returns the bytes of memory that the machine has for programs; 0: unknown.
func (r Root) MemTotal() uint64 {
	all, err := procfs.NewFS(string(r))
	if err != nil {
		return 0
	}
	memory, err := all.Meminfo()
	if err != nil || memory.MemTotalBytes == nil {
		return 0
	}
	return *memory.MemTotalBytes
}
