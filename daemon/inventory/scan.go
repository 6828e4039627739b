package inventory

import (
	"os"
	"path/filepath"
	"strings"
)

// This file looks for devices that appear while the inventory is open: after a late load of a driver, a plugged-in card,
// or a new MIG instance. The daemon calls Scan; nvmlfind.go and drm.go find the devices.

// maxTries bounds the initialisations of NVML for a PCI device that it does not show, because each of them closes and
// opens all GPUs.
const maxTries = 3

// Scan looks for devices again, adds the new ones and returns them. Known devices keep their indices. Scan may block
// as long as a driver does, and must not be called by two goroutines at a time.
func (inv *Inventory) Scan() []Device {
	if inv.closed.Load() {
		return nil
	}
	if !inv.host.running() || inv.missesPCI() {
		inv.host.renew()
	}
	var added []Device
	gpus, reason := inv.host.newDevices(inv.known)
	added = append(added, inv.add(gpus)...)
	reasons := appendReason(nil, reason)
	cards, reason := openDRM(inv.sysfs, inv.hasPCI)
	added = append(added, inv.add(cards)...)
	reasons = appendReason(reasons, reason)
	inv.mu.Lock()
	defer inv.mu.Unlock()
	inv.why = strings.Join(reasons, "; ")
	return added
}

// missesPCI reports whether the kernel shows a PCI device with NVIDIA's driver that the set lacks, and for which NVML
// was initialised fewer than maxTries times. It counts that initialisation.
func (inv *Inventory) missesPCI() (misses bool) {
	folders, _ := filepath.Glob(filepath.Join(inv.sysfs, "bus/pci/drivers/nvidia/*:*:*.*"))
	there := map[string]bool{}
	for _, folder := range folders {
		address := strings.ToLower(filepath.Base(folder))
		there[address] = true
		if !inv.hasPCI(address) && inv.tried[address] < maxTries {
			inv.tried[address]++
			misses = true
		}
	}
	for address := range inv.tried {
		if !there[address] {
			delete(inv.tried, address)
		}
	}
	return misses
}

// Suspended reports whether the kernel has suspended a device. A reading would wake it.
func (inv *Inventory) Suspended(index int) bool {
	inv.mu.RLock()
	defer inv.mu.RUnlock()
	for _, d := range inv.devices {
		if d.Index == index && d.PCI != "" {
			text, err := os.ReadFile(filepath.Join(inv.sysfs, "bus/pci/devices", d.PCI, "power/runtime_status"))
			return err == nil && strings.TrimSpace(string(text)) == "suspended"
		}
	}
	return false
}
