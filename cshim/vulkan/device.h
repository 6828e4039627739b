// SPDX-License-Identifier: Apache-2.0
// Finds gpuarb's number of a physical device of Vulkan (core/device.h). Used by logical.c, memory.c
// and query.c.
#ifndef GA_VULKAN_DEVICE_H
#define GA_VULKAN_DEVICE_H

#include "vulkan/chain.h"

// Reads the facts about a physical device, from the instance's records or else from the driver.
void ga_vulkan_device_read(struct ga_root *root, struct ga_vulkan_instance *instance,
                           ga_vk_physical physical, struct ga_vulkan_facts *facts);
// Returns the number of a physical device; −1: it cannot be arbitrated.
int ga_vulkan_device_number(struct ga_root *root, const struct ga_vulkan_facts *facts);
// Reports whether the driver alone decides about a device: the daemon does not have it, and
// must_be_arbitrated is false. The daemon is asked for its devices if they are not known yet.
bool ga_vulkan_device_is_exempt(struct ga_root *root, const struct ga_vulkan_facts *facts,
                                int number);
// Reports whether a heap is the device's memory.
static inline bool ga_vulkan_device_has_heap(const struct ga_vulkan_facts *facts,
                                             uint32_t heap_flags) {
    return facts->is_cpu || heap_flags & GA_VK_HEAP_DEVICE_LOCAL;
}

#endif
