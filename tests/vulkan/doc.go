// Package vulkan runs programs of Vulkan under the real shim and the real daemon, on the system's loader and a driver that
// computes on the processor (lavapipe). What reaches that driver a layer of the test's own counts (tests/programs/vkcount.c).
package vulkan
