package shim

// This file chooses which devices a program sees. launch.go calls it.

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/gpuarb/gpuarb/ipc"
)

// VisibilityVariables are the variables that choose the devices of a program, by vendor.
var VisibilityVariables = map[uint32]string{
	ipc.VendorNVIDIA: "CUDA_VISIBLE_DEVICES",
	ipc.VendorAMD:    "ROCR_VISIBLE_DEVICES",
	ipc.VendorIntel:  "ZE_AFFINITY_MASK",
}

// visible returns an environment in which programs see only these devices. The variables of other
// vendors are emptied, so that programs do not use other cards by accident. HIP's own variables
// select among the devices of ROCR_VISIBLE_DEVICES, so they are removed.
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

// visibleName returns the name of a device for the vendor's variable. This is its UUID if it has
// one, because no other variable can make a UUID mean another device.
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
