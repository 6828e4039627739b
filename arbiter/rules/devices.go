package rules

import (
	"slices"
	"strconv"
	"strings"
)

// This file has the devices that a rule allows (the key devices). The arbiter refuses other devices, and `gpuarb run` hides them from
// programs.

// DeviceList lists devices by their index or UUID, separated by commas: "0,GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427". It is comparable,
// so that a change of a rule can be noticed. "": every device.
type DeviceList string

// ListDevices returns the list of the given indices and UUIDs.
func ListDevices(names []string) DeviceList { return DeviceList(strings.Join(names, ",")) }

// Names returns the indices and UUIDs of a list; nil: every device.
func (l DeviceList) Names() []string {
	if l == "" {
		return nil
	}
	return strings.Split(string(l), ",")
}

// Has reports whether a list contains a device. The processor is in every list, because no variable hides it. A GPU that MIG divides
// stands for its instances.
func (l DeviceList) Has(d Device) bool {
	if l == "" || !d.IsGPU() {
		return true
	}
	return slices.ContainsFunc(l.Names(), func(name string) bool {
		index, err := strconv.Atoi(name)
		if err == nil {
			return index == d.Index || d.Parent != nil && index == *d.Parent
		}
		return name == d.UUID || d.Parent != nil && name == d.ParentUUID
	})
}
