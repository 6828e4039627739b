// Package inventory finds the devices of the machine, reads which processes use them, and reports when a process calls
// execve or ends. It only reads: it sets nothing on any device.
//
// The main type is [Inventory]. NVIDIA devices come from NVML, whose library Open loads through the ordinary search path.
// AMD and Intel devices come from DRM's files in sysfs. If a source is missing, its devices are absent, and Why has the
// reason. The processor is a device too if a driver is installed that computes on it: PoCL for OpenCL, lavapipe for
// Vulkan.
//
// Invariants: a device keeps its index while the inventory is open. The package owns no descriptor of a process: pidfds
// given to a [Reaper] stay the caller's.
//
// Locking: all methods are safe for concurrent use, except Scan. Read may block: NVML blocks for seconds while a card
// wakes up, and for ever if its driver hangs. No lock that admission needs may be held during Read or Scan.
//
// Only this package imports go-nvml.
package inventory
