// SPDX-License-Identifier: Apache-2.0
// Logical devices: each takes a slot of every physical device that it is of, or is refused.
#ifndef GA_VULKAN_LOGICAL_H
#define GA_VULKAN_LOGICAL_H

#include "vulkan/vulkan.h"

ga_vk_result ga_vulkan_logical_create(ga_vk_physical physical, const struct ga_vk_device_info *info,
                                      const void *allocator, ga_vk_device *device);
void ga_vulkan_logical_destroy(ga_vk_device device, const void *allocator);

#endif
