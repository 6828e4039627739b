package inventory

// This file finds the processor as a device, if a driver is installed that computes on it. inventory.go calls it when
// the inventory is opened.

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuarb/gpuarb/accounting"
	"github.com/gpuarb/gpuarb/internal/procfacts"
	"github.com/gpuarb/gpuarb/ipc"
)

// ProcessorUUID is the processor's identity on every machine, known to the library and the daemon without a message.
// It is ASCII text, which no driver uses for a GPU.
const ProcessorUUID = "gpuarb:processor"

// The folders in which the loaders of OpenCL and Vulkan look for drivers, unless a variable names others.
const openCLFolder = "/etc/OpenCL/vendors"

var vulkanFolders = []string{"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"}

// drivers lists the places in which drivers for the processor may be installed.
type drivers struct {
	getenv func(name string) string
	openCL string
	vulkan []string
}

// processor returns the processor if a driver is installed that computes on it. If none is installed, it gives no
// reason, because users do not expect this device.
func (d drivers) processor(proc procfacts.Root) (list []foundDevice) {
	total := proc.MemTotal()
	if total == 0 || !d.pocl() && !d.lavapipe() {
		return nil
	}
	device := Device{Index: accounting.ProcessorIndex, Vendor: accounting.VendorCPU, Name: cmp.Or(proc.Processor(), "processor"), Total: total}
	copy(device.UUIDBytes[:], ProcessorUUID)
	device.UUID = "CPU-" + ipc.UUID(device.UUIDBytes).String()
	return []foundDevice{{device, processorSource{}}}
}

// pocl reports whether OpenCL's loader would load PoCL.
func (d drivers) pocl() bool {
	isPoCL := func(library string) bool { return strings.Contains(filepath.Base(library), "pocl") }
	files, library := d.openCLDrivers()
	return isPoCL(library) || slices.ContainsFunc(files, func(file string) bool {
		library, err := readText(file)
		return err == nil && isPoCL(library)
	})
}

// openCLDrivers returns the files that name libraries, or the one library, that OCL_ICD_VENDORS selects in the rules
// of ocl-icd (libOpenCL(7)). The variable may be a folder, a file that ends in .icd, or a library. A name in .icd
// without a slash lies in the usual folder.
func (d drivers) openCLDrivers() (files []string, library string) {
	path := cmp.Or(d.getenv("OCL_ICD_VENDORS"), d.openCL)
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return inFolder(path, "*.icd"), ""
	case strings.HasSuffix(path, ".icd") && !strings.Contains(path, "/"):
		return []string{filepath.Join(d.openCL, path)}, ""
	case strings.HasSuffix(path, ".icd"):
		return []string{path}, ""
	case path == d.openCL:
		return nil, ""
	}
	return nil, path
}

// lavapipe reports whether Vulkan's loader would load lavapipe. VK_DRIVER_FILES, or the older VK_ICD_FILENAMES,
// replaces the usual folders by a list: each element is a manifest or a folder of manifests.
func (d drivers) lavapipe() bool {
	const manifest = "lvp_icd*.json"
	paths := d.vulkan
	if list := cmp.Or(d.getenv("VK_DRIVER_FILES"), d.getenv("VK_ICD_FILENAMES")); list != "" {
		paths = filepath.SplitList(list)
	}
	return slices.ContainsFunc(paths, func(path string) bool {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return len(inFolder(path, manifest)) > 0
		}
		named, err := filepath.Match(manifest, filepath.Base(path))
		return named && err == nil
	})
}

// inFolder returns the files in a folder whose names match a pattern. It does not interpret the folder's own name as
// a pattern.
func inFolder(folder, pattern string) (files []string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if named, err := filepath.Match(pattern, e.Name()); named && err == nil {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files
}

// processorSource reads nothing: no source says which part of a process's memory is for computing. The kernel frees
// all of it when the process ends.
type processorSource struct{}

func (processorSource) usage() (Usage, error) { return Usage{}, nil }

func (processorSource) utilisation() map[int]int { return nil }
