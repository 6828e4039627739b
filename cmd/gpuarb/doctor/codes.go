package doctor

// This file explains the error codes of drivers and loaders. shim.go calls explain.

import "fmt"

// failure explains an error code because of which an interface cannot be used.
type failure struct {
	name    string // name of the code
	meaning string
	advice  string
}

// failures are the codes that are known, by the text of the probe. Names and numbers are those of
// cuda.h, nvml.h, cl_ext.h and vulkan_core.h.
var failures = map[string]failure{
	"cuInit fails with 34": {"CUDA_ERROR_STUB_LIBRARY", "this libcuda.so.1 is the toolkit's, to link with, and no driver",
		"take the toolkit's folder named stubs out of LD_LIBRARY_PATH"},
	"cuInit fails with 100": {"CUDA_ERROR_NO_DEVICE", "CUDA finds no GPU",
		"see whether nvidia-smi lists one, and what CUDA_VISIBLE_DEVICES says; a container has to be given GPUs (docker run --gpus all)"},
	"cuInit fails with 802": {"CUDA_ERROR_SYSTEM_NOT_READY", "the driver is not ready",
		"on machines with NVSwitch start nvidia-fabricmanager, of the driver's version"},
	"cuInit fails with 803": {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", mismatch, updateAdvice},
	"cuInit fails with 804": {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "this libcuda.so.1 is of the package for forward compatibility, which this GPU cannot use",
		"take the toolkit's folder named compat out of LD_LIBRARY_PATH"},
	"cuInit fails with 999": {"CUDA_ERROR_UNKNOWN", "the driver does not say why",
		"see whether /dev/nvidia-uvm is there (nvidia-modprobe -u -c 0 makes it) and can be opened, and what dmesg says"},
	"nvmlInit_v2 fails with 4":  {"NVML_ERROR_NO_PERMISSION", "/dev/nvidiactl may not be opened", "see ls -l /dev/nvidia*; a container has to be given GPUs (docker run --gpus all)"},
	"nvmlInit_v2 fails with 9":  {"NVML_ERROR_DRIVER_NOT_LOADED", "the kernel's NVIDIA driver is not loaded, or /dev/nvidiactl is not here", "modprobe nvidia; a container has to be given GPUs (docker run --gpus all)"},
	"nvmlInit_v2 fails with 18": {"NVML_ERROR_LIB_RM_VERSION_MISMATCH", mismatch, updateAdvice},
	"clGetPlatformIDs fails with -1001": {"CL_PLATFORM_NOT_FOUND_KHR", "the loader found no OpenCL driver that it could load",
		"if programs are to use OpenCL: a file of /etc/OpenCL/vendors has to name its driver (nvidia.icd: libnvidia-opencl.so.1)"},
	"vkCreateInstance fails with -1": {"VK_ERROR_OUT_OF_HOST_MEMORY", "the loader, a layer or a driver got no memory", "see ulimit -v, free -h, and the limit of this cgroup; " + loaderAdvice},
	"vkCreateInstance fails with -3": {"VK_ERROR_INITIALIZATION_FAILED", "a Vulkan driver or a layer could not start",
		"see whether /dev/nvidia* or /dev/dri/renderD* can be opened; " + loaderAdvice},
	"vkCreateInstance fails with -9": {"VK_ERROR_INCOMPATIBLE_DRIVER", "the loader found no Vulkan driver that it could load",
		"if programs are to use Vulkan: install one; NVIDIA's is libGLX_nvidia.so.0 and an nvidia_icd.json in /usr/share/vulkan/icd.d that names it " +
			"(in a container NVIDIA_DRIVER_CAPABILITIES must have graphics); " + loaderAdvice},
}

const (
	mismatch     = "the driver's libraries and the kernel's driver are of different versions"
	updateAdvice = "restart the machine after an update of the driver; in a container see which libraries LD_LIBRARY_PATH leads to"
	loaderAdvice = "VK_LOADER_DEBUG=all tells more, in any Vulkan program"
)

// explain returns the text of the probe with the meaning of its code, and advice. If the code is
// not known, the advice is general.
func explain(detail, general string) (text, advice string) {
	f, known := failures[detail]
	if !known {
		return detail, general
	}
	return fmt.Sprintf("%s (%s): %s", detail, f.name, f.meaning), f.advice
}
