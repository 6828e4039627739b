// SPDX-License-Identifier: Apache-2.0
// Which device the core knows a physical device of Vulkan's by.
#ifndef GA_VULKAN_DEVICE_H
#define GA_VULKAN_DEVICE_H

#include "vulkan/chain.h"

// Finds out what a physical device is.
void ga_vulkan_device_read(struct ga_root *root, struct ga_vulkan_instance *instance,
                           ga_vk_physical physical, struct ga_vulkan_part *part);
// Its number; −1: it cannot be arbitrated.
int ga_vulkan_device_number(struct ga_root *root, const struct ga_vulkan_part *part);
// Whether the daemon has no such device, and it is no card of which it must have one: then it is
// the driver's alone. The daemon is asked for the lease.
bool ga_vulkan_device_lacks(struct ga_root *root, const struct ga_vulkan_part *part, int number);
// Whether memory of a heap is the device's.
static inline bool ga_vulkan_device_has(const struct ga_vulkan_part *part, uint32_t heap_flags) {
    return part->processor || heap_flags & GA_VK_HEAP_DEVICE_LOCAL;
}

#endif
