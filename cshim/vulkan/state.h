// SPDX-License-Identifier: Apache-2.0
// What Vulkan's side knows in a process. It lies behind the root, in the pages that a forked child
// finds zeroed.
#ifndef GA_VULKAN_STATE_H
#define GA_VULKAN_STATE_H

#include "core/interface.h"
#include "vulkan/vulkan.h"

struct ga_vulkan_state {
    // Bytes that are charged, by the device's number and the heap that they are of.
    _Atomic uint64_t held[GA_DEVICES][GA_VK_HEAPS];
};

// Vulkan has no library that is looked for: its loader looks for this one.
extern struct ga_interface ga_vulkan_interface;
extern size_t ga_vulkan_place; // how far behind the root it lies

static inline struct ga_vulkan_state *ga_vulkan(struct ga_root *root) {
    return (struct ga_vulkan_state *)(void *)((uint8_t *)root + ga_vulkan_place);
}

// The root, once the core has met this interface. NULL: not to be had now, as of ga_root_get.
struct ga_root *ga_vulkan_root(void);

#endif
