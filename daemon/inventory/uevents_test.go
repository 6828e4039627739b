package inventory

import (
	"context"
	"strings"
	"testing"

	"github.com/gpuarb/gpuarb/tests/bounded"
)

// This file checks which of the kernel's messages announce a new device, with texts as the kernel sends them, and
// that the watch ends with its context.

// TestAnnouncesDevice checks which messages of the kernel make the daemon look for new devices.
func TestAnnouncesDevice(t *testing.T) {
	for text, want := range map[string]bool{
		"add@/module/nvidia ACTION=add DEVPATH=/module/nvidia SUBSYSTEM=module":                            true,
		"add@/module/nvidia_uvm ACTION=add DEVPATH=/module/nvidia_uvm SUBSYSTEM=module":                    true,
		"remove@/module/nvidia ACTION=remove DEVPATH=/module/nvidia SUBSYSTEM=module":                      false,
		"add@/module/xfs ACTION=add DEVPATH=/module/xfs SUBSYSTEM=module":                                  false,
		"bind@/devices/pci0000:00/0000:01:00.0 ACTION=bind SUBSYSTEM=pci PCI_CLASS=30000 PCI_ID=10DE:2684": true,
		"add@/devices/pci0000:00/0000:02:00.0 ACTION=add SUBSYSTEM=pci PCI_CLASS=20000 PCI_ID=8086:1533":   false,
		"add@/devices/pci0000:00/0000:03:00.0/drm/card1 ACTION=add SUBSYSTEM=drm DEVNAME=dri/card1":        true,
		"change@/devices/virtual/block/loop0 ACTION=change SUBSYSTEM=block":                                false,
		"":                                false,
		"libudev":                         false,
		"add@/module/nvidia ACTION=add":   false,
		"add@/x ACTION=add SUBSYSTEM=pci": false,
	} {
		if got := announcesDevice([]byte(strings.ReplaceAll(text, " ", "\x00"))); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestWatchDevicesEnds checks that WatchDevices returns without an error when its context ends.
func TestWatchDevicesEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	cancel()
	if !bounded.Done(func() { err = WatchDevices(ctx, func() {}) }) || err != nil {
		t.Errorf("%v", err)
	}
}
