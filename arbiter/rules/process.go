package rules

import "github.com/gpuarb/gpuarb/accounting"

// Process is what the kernel says about a client's process. PID alone names
// nobody: the pair of PID and StartTicks does.
type Process struct {
	PID        int
	StartTicks uint64 // clock ticks since boot; 0 when not known
	UID, GID   uint32
	Privileged bool     // may pass the rules: root, or the daemon's own user, in the daemon's own namespaces
	Namespace  uint64   // of a process whose user is root or the daemon's own: its PID namespace. If it is not privileged, it owns only what its user opened there. 0: any other user, whose number alone counts
	User       string   // name, or the number where there is none
	Groups     []string // names of all groups of the process
	Exe        string   // path of the executable
	Command    string   // command line, for people and for match.command
	Cgroup     string   // path below /sys/fs/cgroup, beginning with a slash
	AlsoIn     []string // its paths in other hierarchies of cgroup v1, where they differ
	Unit       string   // systemd unit, or ""
	Container  string   // container ID or name, or ""
	NSPID      int      // PID in its own PID namespace, for people; 0 when not known
}

// Cgroups yields the paths of a process in all hierarchies.
func (p *Process) Cgroups(yield func(string) bool) {
	if !yield(p.Cgroup) {
		return
	}
	for _, at := range p.AlsoIn {
		if !yield(at) {
			return
		}
	}
}

// InCgroup reports whether a process runs in a cgroup or below it, in any hierarchy.
func (p *Process) InCgroup(of string) bool {
	for at := range p.Cgroups {
		if accounting.InCgroup(at, of) {
			return true
		}
	}
	return false
}

// Device is one GPU as the inventory found it.
type Device struct {
	Index  int
	Vendor string // nvidia, amd, intel or cpu
	Name   string
	UUID   string
	PCI    string // domain:bus:device.function, lower case
	Parent *int   // index of the GPU that MIG made it of; nil: it is none of MIG's instances
	Total  accounting.Bytes
	From   accounting.TotalFrom // where Total comes from
}

// IsGPU reports whether the device is one: the processor is none. It is a device that programs may use, and that nobody
// is given who asks for any, or for all there are.
func (d Device) IsGPU() bool { return d.Vendor != accounting.VendorCPU }

// String is how people know the device.
func (d Device) String() string { return accounting.DeviceName(d.Index, !d.IsGPU()) }

// MayPass reports whether a process may pass the rules.
func (p *Process) MayPass() bool { return p.Privileged || root(p.UID, p.Namespace) }

// root reports whether a process is root's and has no namespace noted (0), so that its user number alone counts.
func root(uid uint32, namespace uint64) bool { return uid == 0 && namespace == 0 }
