// SPDX-License-Identifier: Apache-2.0
// Memory that is imported: what a process has of others', which readings of it show. It costs
// nothing here; who has exported it is charged.
#ifndef GA_VULKAN_IMPORT_H
#define GA_VULKAN_IMPORT_H

#include "core/root.h"
#include "vulkan/vulkan.h"

// How what a program asks for is known.
enum ga_vulkan_source {
    GA_VULKAN_OWN,      // it is new
    GA_VULKAN_IMPORTED, // it is somebody's already
    GA_VULKAN_HOST,     // it is the program's own memory
};
enum ga_vulkan_source ga_vulkan_import_source(const struct ga_vk_memory_info *info);

// What was imported, by its key, with the context of its logical device; and that it was freed.
void ga_vulkan_import_note(struct ga_root *root, const struct ga_entry *entry);
void ga_vulkan_import_forget(struct ga_root *root, uint64_t key);
// All of a context.
void ga_vulkan_import_sweep(struct ga_root *root, uint64_t context);

#endif
