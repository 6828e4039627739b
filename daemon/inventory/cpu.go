package inventory

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

// ProcessorUUID is the processor's, on every machine: programs and this daemon meet on it without either asking
// the other. It is ASCII text, which no driver gives a GPU.
const ProcessorUUID = "gpuarb:processor"

// Where the loaders of OpenCL and Vulkan look for drivers when no variable says otherwise.
const openCLFolder = "/etc/OpenCL/vendors"

var vulkanFolders = []string{"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"}

// drivers is where drivers that compute on the processor are looked for.
type drivers struct {
	getenv func(name string) string
	openCL string
	vulkan []string
}

// processor finds the processor: it is a device where a driver is installed
// that has programs compute on it. No reason is given where there is none: nobody expects one.
func (d drivers) processor(proc procfacts.Root) (list []found) {
	total := proc.MemTotal()
	if total == 0 || !d.pocl() && !d.lavapipe() {
		return nil
	}
	device := Device{Index: accounting.ProcessorIndex, Vendor: accounting.VendorCPU, Name: cmp.Or(proc.Processor(), "processor"), Total: total}
	copy(device.UUIDBytes[:], ProcessorUUID)
	device.UUID = "CPU-" + ipc.UUID(device.UUIDBytes).String()
	return []found{{device, processorSource{}}}
}

// pocl tells whether OpenCL's loader would load PoCL.
func (d drivers) pocl() bool {
	isPoCL := func(library string) bool { return strings.Contains(filepath.Base(library), "pocl") }
	files, library := d.openCLDrivers()
	return isPoCL(library) || slices.ContainsFunc(files, func(file string) bool {
		library, err := readText(file)
		return err == nil && isPoCL(library)
	})
}

// openCLDrivers are the files that name libraries, or the one library, as ocl-icd reads OCL_ICD_VENDORS
// (libOpenCL(7)): a folder, a file that ends in .icd, which without a slash lies in the usual folder, or else a library.
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

// lavapipe tells whether Vulkan's loader would load lavapipe. What VK_DRIVER_FILES, or VK_ICD_FILENAMES by its older
// name, lists takes the place of the usual folders: each is a manifest or a folder of them.
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

// inFolder are the files of a folder that a pattern matches. The folder's own name is no pattern.
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

// processorSource reads nothing: of what a process has of the machine's memory, nobody can tell which part it
// computes with. The kernel frees all of it when the process ends.
type processorSource struct{}

func (processorSource) usage() (Usage, error) { return Usage{}, nil }
