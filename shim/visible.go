package shim

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/ipc"
)

// Visibility is a change of the environment that makes a program see some devices.
type Visibility struct {
	Set   []Variable
	Unset []string
}

// Variable is a variable of the environment.
type Variable struct{ Name, Value string }

// VisibilityVariables are the variables by which programs are given devices, by vendor.
var VisibilityVariables = map[uint32]string{
	ipc.VendorNVIDIA: "CUDA_VISIBLE_DEVICES",
	ipc.VendorAMD:    "ROCR_VISIBLE_DEVICES",
	ipc.VendorIntel:  "ZE_AFFINITY_MASK",
}

// Visible returns what makes a program see these devices and no other. The variables of
// other vendors are emptied, so that it does not take their cards by accident. HIP's
// own variables count within what ROCR_VISIBLE_DEVICES leaves, and so they go.
func Visible(devices []ipc.JobDevice) Visibility {
	v := Visibility{
		Set:   []Variable{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}},
		Unset: []string{"HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"},
	}
	for _, vendor := range []uint32{ipc.VendorNVIDIA, ipc.VendorAMD, ipc.VendorIntel} {
		var names []string
		for _, d := range devices {
			if d.Vendor == vendor {
				names = append(names, visibleName(d))
			}
		}
		v.Set = append(v.Set, Variable{VisibilityVariables[vendor], strings.Join(names, ",")})
	}
	return v
}

// visibleName is how the vendor's variable names a device: by its UUID where it has
// one, which no other variable can turn into another device.
func visibleName(d ipc.JobDevice) string {
	switch {
	case d.UUID == ipc.UUID{}:
	case d.Vendor == ipc.VendorNVIDIA:
		return "GPU-" + d.UUID.String()
	case d.Vendor == ipc.VendorAMD && !bytes.ContainsAny(d.UUID[:], "\x00,"):
		return "GPU-" + string(d.UUID[:])
	}
	return strconv.FormatUint(uint64(d.Ordinal), 10)
}

// Apply returns env with the change made.
func (v Visibility) Apply(env []string) []string {
	for _, name := range v.Unset {
		env = unsetenv(env, name)
	}
	for _, variable := range v.Set {
		env = setenv(env, variable.Name, variable.Value)
	}
	return env
}
