package shim

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/ipc"
)

// VisibilityVariables are the variables by which programs are given devices, by vendor.
var VisibilityVariables = map[uint32]string{
	ipc.VendorNVIDIA: "CUDA_VISIBLE_DEVICES",
	ipc.VendorAMD:    "ROCR_VISIBLE_DEVICES",
	ipc.VendorIntel:  "ZE_AFFINITY_MASK",
}

// visible has the programs of an environment see these devices and no other. The variables of
// other vendors are emptied, so that they do not take their cards by accident. HIP's
// own variables count within what ROCR_VISIBLE_DEVICES leaves, and so they go.
func visible(env []string, devices []ipc.JobDevice) []string {
	env = unsetenv(unsetenv(env, "HIP_VISIBLE_DEVICES"), "GPU_DEVICE_ORDINAL")
	env = setenv(env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	for _, vendor := range []uint32{ipc.VendorNVIDIA, ipc.VendorAMD, ipc.VendorIntel} {
		var names []string
		for _, d := range devices {
			if d.Vendor == vendor {
				names = append(names, visibleName(d))
			}
		}
		env = setenv(env, VisibilityVariables[vendor], strings.Join(names, ","))
	}
	return env
}

// visibleName is how the vendor's variable names a device: by its UUID where it has
// one, which no other variable can turn into another device.
func visibleName(d ipc.JobDevice) string {
	switch {
	case d.UUID == ipc.UUID{}:
	case d.Vendor == ipc.VendorNVIDIA && d.Kind == ipc.JobDeviceMIG:
		return "MIG-" + d.UUID.String()
	case d.Vendor == ipc.VendorNVIDIA:
		return "GPU-" + d.UUID.String()
	case d.Vendor == ipc.VendorAMD && !bytes.ContainsAny(d.UUID[:], "\x00,"):
		return "GPU-" + string(d.UUID[:])
	}
	return strconv.FormatUint(uint64(d.Ordinal), 10)
}
