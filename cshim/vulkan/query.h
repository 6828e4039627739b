// SPDX-License-Identifier: Apache-2.0
// What a program is told of the device's memory: its budget.
#ifndef GA_VULKAN_QUERY_H
#define GA_VULKAN_QUERY_H

#include "vulkan/vulkan.h"

void ga_vulkan_query_memory(ga_vk_physical physical, struct ga_vk_memory_properties *properties);
void ga_vulkan_query_memory_2(ga_vk_physical physical,
                              struct ga_vk_memory_properties_2 *properties);

#endif
