// SPDX-License-Identifier: Apache-2.0
// Wrappers for Vulkan's device memory. An allocation is charged with the size that the program
// asked for. In a group of devices only one device is charged. logical.c and query.c use it.
#ifndef GA_VULKAN_MEMORY_H
#define GA_VULKAN_MEMORY_H

#include "vulkan/chain.h"

// Vulkan's space of keys (core/table.h): memory of a logical device, by key_of in memory.c.
enum { GA_SPACE_VULKAN = 14, GA_SPACES_VULKAN_END };

// Sets the salt of a logical device. Must be called when the program makes the device.
void ga_vulkan_memory_start(struct ga_vulkan_device *device);
// Gives back all memory that the program has not freed when it destroys a logical device.
void ga_vulkan_memory_sweep(struct ga_root *root, const struct ga_vulkan_device *device);

// Adds to held the bytes that the process has of each heap of a device, given gpuarb's number of
// the device. It reads the whole table of blocks.
void ga_vulkan_memory_held(struct ga_root *root, uint32_t device, uint64_t held[GA_VK_HEAPS]);

#endif
