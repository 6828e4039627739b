// SPDX-License-Identifier: Apache-2.0
// What a physical device is, by what its driver says of it. Which device a driver that computes on
// the processor is counted on is not asked here (device.h).
#ifndef GA_VULKAN_IDENTITY_H
#define GA_VULKAN_IDENTITY_H

#include "vulkan/chain.h"

void ga_vulkan_identity_read(const struct ga_vulkan_instance *instance, ga_vk_physical physical,
                             struct ga_vulkan_part *part);

#endif
