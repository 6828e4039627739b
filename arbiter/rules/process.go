package rules

import "github.com/gpuarb/gpuarb/accounting"

// This file has the facts about processes and devices that rules match. The daemon fills them in.

// Process describes a client process by facts from the kernel. Only PID and StartTicks together identify a process.
type Process struct {
	PID        int
	StartTicks uint64 // clock ticks since boot; 0: unknown
	UID, GID   uint32
	Privileged bool     // may exceed the rules: root or the daemon's own user, in the daemon's own namespaces
	Namespace  uint64   // PID namespace of a process whose user is root or the daemon's own; 0: any other user. A process in another namespace that is not privileged owns only what its user opened in that namespace.
	User       string   // name, or the number if there is none
	Groups     []string // names of all groups of the process
	Exe        string   // path of the executable
	Command    string   // command line, for messages and for match.command
	Cgroup     string   // path below /sys/fs/cgroup, beginning with a slash
	AlsoIn     []string // paths in other hierarchies of cgroup v1, if they differ
	Unit       string   // systemd unit; "": none
	Container  string   // container ID or name; "": none
	NSPID      int      // PID in its own PID namespace, for messages; 0: unknown
	Visible    Visible  // variables that choose its devices
}

// Visible is the part of the environment of a process, at its start, that chooses devices: the variables in VisibleNames (visible.go). nil:
// it is not known.
type Visible map[string]string

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

// Device is one GPU, or the processor, as the daemon found it.
type Device struct {
	Index  int
	Vendor string // nvidia, amd, intel or cpu
	Name   string
	UUID   string
	PCI    string // domain:bus:device.function, lower case
	Parent *int   // index of the GPU that a MIG instance belongs to; nil: not a MIG instance
	// ParentUUID is the UUID of that GPU; "": not a MIG instance.
	ParentUUID string
	Total      accounting.Bytes
	From       accounting.TotalFrom // source of Total
}

// IsGPU reports whether the device is a GPU, and not the processor. Programs may use the processor, but a request for any device, or for
// all devices, does not include it.
func (d Device) IsGPU() bool { return d.Vendor != accounting.VendorCPU }

// String returns the name of the device for messages.
func (d Device) String() string { return accounting.DeviceName(d.Index, !d.IsGPU()) }

// MayPass reports whether a process may exceed the rules.
func (p *Process) MayPass() bool { return p.Privileged || root(p.UID, p.Namespace) }

// root reports whether a process belongs to root in the daemon's own namespaces (namespace 0).
func root(uid uint32, namespace uint64) bool { return uid == 0 && namespace == 0 }
