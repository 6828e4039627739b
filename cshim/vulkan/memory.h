// SPDX-License-Identifier: Apache-2.0
// Device memory: charged by what was asked for, to each device that has it.
#ifndef GA_VULKAN_MEMORY_H
#define GA_VULKAN_MEMORY_H

#include "vulkan/chain.h"

ga_vk_result ga_vulkan_memory_allocate(ga_vk_device device, const struct ga_vk_memory_info *info,
                                       const void *allocator, ga_vk_memory *memory);
void ga_vulkan_memory_free(ga_vk_device device, ga_vk_memory memory, const void *allocator);
// What a logical device has left when it is destroyed.
void ga_vulkan_memory_sweep(struct ga_root *root, const struct ga_vulkan_device *device);

#endif
