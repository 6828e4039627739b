// SPDX-License-Identifier: Apache-2.0
#include "vulkan/state.h"

size_t ga_vulkan_place;

struct ga_interface ga_vulkan_interface = {
    .state = sizeof(struct ga_vulkan_state),
    .place = &ga_vulkan_place,
};

struct ga_root *ga_vulkan_root(void) {
    if (GA_UNLIKELY(ga_vulkan_place == 0) && !ga_interface_join(&ga_vulkan_interface))
        return NULL;
    return ga_root_get();
}
