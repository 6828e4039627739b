package procfacts

import "github.com/prometheus/procfs"

// Processor is what the kernel calls the machine's processor; empty where it does not say, as on most ARM machines.
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

// MemTotal is how many bytes of memory the machine has for programs; 0 where that cannot be read.
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
