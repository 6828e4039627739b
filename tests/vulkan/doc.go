// Package vulkan runs Vulkan programs under the real library and the real daemon, with the system's
// Vulkan loader and a driver that computes on the CPU (lavapipe). The oracle is a layer of the
// tests that counts the bytes that reach the driver (tests/programs/vkcount.c).
package vulkan
