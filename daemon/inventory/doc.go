// Package inventory says which GPUs the machine has and who uses them, and when a process does
// exec or ends. It only reads: it sets nothing on any device.
//
// NVIDIA devices come from NVML, whose library is loaded by Open through the
// ordinary search path; AMD and Intel devices come from DRM's files in sysfs. A
// machine without the one or the other is no error: the devices are then absent,
// and Why says for what reason. The processor comes last, where a driver is installed that
// computes on it (PoCL for OpenCL, lavapipe for Vulkan); it is a device, and no GPU.
//
// Read may block: NVML does for seconds while a card wakes up, for good when its driver
// hangs. It must not be called with a lock held that admission needs.
//
// All methods are safe for concurrent use. Nothing here is kept open for a process:
// pidfds given to a Reaper stay the caller's.
//
// This package alone imports go-nvml.
package inventory
