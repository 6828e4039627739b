// SPDX-License-Identifier: Apache-2.0
// Device memory: charged by what was asked for. In a group of devices one of them is charged.
#ifndef GA_VULKAN_MEMORY_H
#define GA_VULKAN_MEMORY_H

#include "vulkan/chain.h"

// Vulkan's space of keys (core/table.h): memory of a logical device, by key_of in memory.c.
enum { GA_SPACE_VULKAN = 14, GA_SPACES_VULKAN_END };

// Before the first one, of a logical device that is to be made.
void ga_vulkan_memory_start(struct ga_vulkan_device *device);
// What a logical device has left when it is destroyed.
void ga_vulkan_memory_sweep(struct ga_root *root, const struct ga_vulkan_device *device);

// What the process has of each heap of a device, by its number: added up on each call, by a look at
// all that is held.
void ga_vulkan_memory_held(struct ga_root *root, uint32_t device, uint64_t held[GA_VK_HEAPS]);

#endif
