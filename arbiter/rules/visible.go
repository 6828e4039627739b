package rules

import (
	"slices"
	"strconv"
	"strings"
)

// This file computes which devices an environment shows to a program. It reads the vendors' variables as the libraries of the vendors do.
// The arbiter reserves memory on these devices; `gpuarb run` chooses among them.

// VisibleBy are the variables of the vendors that choose the devices of a program.
var VisibleBy = map[string]string{"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES", "intel": "ZE_AFFINITY_MASK"}

// cudaOrder is the variable that says in which order CUDA numbers devices. byAddress is its value for the order of gpuarb.
const (
	cudaOrder = "CUDA_DEVICE_ORDER"
	byAddress = "PCI_BUS_ID"
)

// VisibleNames are the variables that a Visible has.
var VisibleNames = []string{VisibleBy["nvidia"], VisibleBy["amd"], VisibleBy["intel"], cudaOrder}

// Hidden returns the indices of the GPUs that a process does not see. It returns none for a vendor whose variable it cannot resolve as the
// driver does. These are numbers in another order than that of PCI addresses, and numbers in a container, which may have only some of the
// devices. If CUDA_DEVICE_ORDER is not set, numbers count by PCI address: for identical devices CUDA does the same.
func (p *Process) Hidden(all []Device) (hidden []int) {
	for vendor, variable := range VisibleBy {
		list, set := p.Visible[variable]
		if !set {
			continue
		}
		var of []Device
		for _, d := range all {
			if d.Vendor == vendor {
				of = append(of, d)
			}
		}
		if p.Container != "" && hasNumber(list) || vendor == "nvidia" && Ambiguous(of, list, p.Visible[cudaOrder]) {
			continue
		}
		shown := Listed(of, vendor, list)
		for _, d := range of {
			if !slices.ContainsFunc(shown, func(s Device) bool { return s.Index == d.Index || s.Parent != nil && *s.Parent == d.Index }) {
				hidden = append(hidden, d.Index)
			}
		}
	}
	return hidden
}

// Listed returns the devices of one vendor that a list names, in the order of the list. CUDA and ROCm stop reading at the first entry that
// names no device, or a device that was named before.
func Listed(of []Device, vendor, list string) (found []Device) {
	for _, name := range strings.Split(list, ",") {
		device, ok := entry(of, vendor, strings.TrimSpace(name))
		switch {
		case ok && !slices.ContainsFunc(found, func(d Device) bool { return d.Index == device.Index }):
			found = append(found, device)
		case vendor != "intel":
			return found
		}
	}
	return found
}

// entry returns the device that one entry of a list names. A name is the number among the devices of the vendor, the UUID, or the beginning
// of only one UUID. The name of a MIG instance contains the UUID of its GPU (MIG-GPU-…/1/0), and the name of an Intel tile begins with its
// device (0.1).
func entry(of []Device, vendor, name string) (device Device, ok bool) {
	if vendor == "intel" {
		name, _, _ = strings.Cut(name, ".")
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		for i, device := range of {
			if vendor == "nvidia" {
				i = device.Index // NVIDIA numbers begin with 0, and a card that does not answer leaves a gap
			}
			if i == int(n) {
				return device, true
			}
		}
		return device, false
	}
	if gpu, instance := strings.CutPrefix(name, "MIG-GPU-"); instance {
		gpu, _, _ = strings.Cut(gpu, "/")
		name = "GPU-" + gpu
	}
	found := slices.DeleteFunc(slices.Clone(of), func(d Device) bool {
		return len(name) <= len("GPU-") || !strings.HasPrefix(strings.ToLower(d.UUID), strings.ToLower(name))
	})
	if len(found) != 1 {
		return device, false
	}
	return found[0], true
}

// Ambiguous reports whether a list of NVIDIA devices names some in a way that only the driver can resolve: numbers if CUDA_DEVICE_ORDER puts
// the fastest device first, numbers beside MIG instances, and MIG instances with UUIDs of their own.
func Ambiguous(of []Device, list, order string) bool {
	if len(of) < 2 {
		return false
	}
	instances := slices.ContainsFunc(of, func(d Device) bool { return d.Parent != nil })
	inOrder := order == byAddress || order == ""
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		_, err := strconv.ParseUint(name, 10, 31)
		_, known := entry(of, "nvidia", name)
		if err == nil && (instances || !inOrder) || // with MIG, the numbers of the program are not those of the daemon
			strings.HasPrefix(name, "MIG-") && !strings.HasPrefix(name, "MIG-GPU-") && !known {
			return true
		}
	}
	return false
}

// hasNumber reports whether an entry of a list is a number.
func hasNumber(list string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(name string) bool {
		name, _, _ = strings.Cut(strings.TrimSpace(name), ".")
		_, err := strconv.ParseUint(name, 10, 31)
		return err == nil
	})
}
