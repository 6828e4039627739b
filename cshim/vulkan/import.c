// SPDX-License-Identifier: Apache-2.0
#include "vulkan/import.h"

#include "core/tell.h"
#include "vulkan/chain.h"

static bool is_given(const struct ga_vk_memory_info *info, int32_t type) {
    const struct ga_vk_import *import = ga_vulkan_chain_find(info->next, type);
    return import && import->handle_type;
}

enum ga_vulkan_source ga_vulkan_import_source(const struct ga_vk_memory_info *info) {
    return is_given(info, GA_VK_IMPORT_FD)             ? GA_VULKAN_IMPORTED
           : is_given(info, GA_VK_IMPORT_HOST_POINTER) ? GA_VULKAN_HOST
                                                       : GA_VULKAN_OWN;
}

// Without memory to remember it by, what it explains in a reading is not known from then on.
void ga_vulkan_import_note(struct ga_root *root, const struct ga_entry *entry) {
    struct ga_entry old;
    ga_self_lock(&root->imports_lock);
    bool put = ga_table_put(&root->imports, entry, &old);
    ga_self_unlock(&root->imports_lock);
    ga_tell_import(root, entry->device, put ? entry->bytes : 0, put ? 0 : 1);
    if (put && old.key)
        ga_tell_import(root, old.device, 0 - old.bytes, 0);
}

void ga_vulkan_import_forget(struct ga_root *root, uint64_t key) {
    struct ga_entry entry;
    if (atomic_load(&root->imports.most) == 0)
        return;
    ga_self_lock(&root->imports_lock);
    bool found = ga_table_take(&root->imports, key, &entry);
    ga_self_unlock(&root->imports_lock);
    if (found)
        ga_tell_import(root, entry.device, 0 - entry.bytes, 0);
}

static void add(void *arg, const struct ga_entry *e) {
    uint64_t *bytes = arg;
    bytes[e->device] += e->bytes;
}

void ga_vulkan_import_sweep(struct ga_root *root, uint64_t context) {
    uint64_t bytes[GA_DEVICES] = {0};
    if (atomic_load(&root->imports.most) == 0)
        return;
    ga_self_lock(&root->imports_lock);
    ga_table_drain(&root->imports, context, add, bytes);
    ga_self_unlock(&root->imports_lock);
    for (uint32_t d = 0; d < GA_DEVICES; d++)
        if (bytes[d])
            ga_tell_import(root, d, 0 - bytes[d], 0);
}
