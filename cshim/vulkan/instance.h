// SPDX-License-Identifier: Apache-2.0
// Instances: nothing is taken by them; their chains are remembered.
#ifndef GA_VULKAN_INSTANCE_H
#define GA_VULKAN_INSTANCE_H

#include "vulkan/vulkan.h"

ga_vk_result ga_vulkan_instance_create(const struct ga_vk_instance_info *info,
                                       const void *allocator, ga_vk_instance *instance);
void ga_vulkan_instance_destroy(ga_vk_instance instance, const void *allocator);

#endif
