// SPDX-License-Identifier: Apache-2.0
// Charges device memory, and writes imported memory down (memory.h).
#include "vulkan/memory.h"

#include "core/admit.h"
#include "core/import.h"
#include "vulkan/device.h"

// Mixes the bits of a number, so that the results for neighbouring numbers are far apart.
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// Returns the key of a block. A handle may be an address, or a number that starts again for each
// device. Therefore the key contains the device, as the salt. The salt is added to the handle,
// because the table is fast if neighbouring handles have neighbouring keys.
static struct ga_key key_of(const struct ga_vulkan_device *device, ga_vk_memory memory) {
    return (struct ga_key){memory + device->salt, GA_SPACE_VULKAN};
}

void ga_vulkan_memory_start(struct ga_vulkan_device *device) {
    device->salt = mix((uint64_t)(uintptr_t)device);
}

// Returns the context of an entry: the device's record and the heap. Records are page-aligned, so
// that the heap fits into the low bits of the address.
static uint64_t context_of(const struct ga_vulkan_device *device, uint32_t heap) {
    return (uint64_t)(uintptr_t)device + heap;
}

void ga_vulkan_memory_held(struct ga_root *root, uint32_t device, uint64_t held[GA_VK_HEAPS]) {
    struct ga_entry e;
    struct ga_walk walk = ga_self_walk(&root->blocks);
    while (ga_self_next(&walk, &e))
        if (e.space == GA_SPACE_VULKAN && e.device == device)
            held[e.context % GA_VK_HEAPS] += e.bytes;
}

// Origin of the memory of an allocation.
enum source {
    OWN,      // allocated by the driver, and charged
    IMPORTED, // another allocation, perhaps of another process, which is charged for it
    HOST,     // host memory that the program has already; not charged
};

// Reports whether an allocation imports memory by a structure of this type.
static bool has_import(const struct ga_vk_memory_info *info, int32_t type) {
    const struct ga_vk_import *import = ga_vulkan_chain_find(info->next, type);
    return import && import->handle_type;
}

static enum source source_of(const struct ga_vk_memory_info *info) {
    return has_import(info, GA_VK_IMPORT_FD)             ? IMPORTED
           : has_import(info, GA_VK_IMPORT_HOST_POINTER) ? HOST
                                                         : OWN;
}

// Returns the device of a group that an allocation is charged to: the first device in the program's
// device mask, or the first of the group. If each device has a heap of its own, the driver
// allocates on the other devices too; the daemon sees that in their own figures.
static const struct ga_vulkan_facts *charged_device(const struct ga_vulkan_device *device,
                                                    const struct ga_vk_memory_info *info) {
    const struct ga_vk_allocate_flags *flags =
        ga_vulkan_chain_find(info->next, GA_VK_ALLOCATE_FLAGS_INFO);
    uint32_t named = flags && flags->flags & GA_VK_ALLOCATE_DEVICE_MASK ? flags->device_mask : 1;
    for (uint32_t i = 0; i < device->physical_count; i++)
        if (named & 1u << i)
            return &device->facts[i];
    return &device->facts[0];
}

// Reserves the bytes of an allocation on a device, if the daemon has the device. False: refused.
static bool acquire(struct ga_allocation *c, const struct ga_vulkan_facts *facts) {
    struct ga_entry *e = &c->entry;
    int number = ga_vulkan_device_number(c->root, facts);
    if (number >= 0 && c->full == 0 &&
        ga_admit_fast(c->root, (uint32_t)number, e->bytes, &e->tag)) {
        e->device = (uint8_t)number;
        return true;
    }
    if (number >= 0 && ga_vulkan_device_is_exempt(c->root, facts, number))
        number = -1;
    return ga_allocation_acquire(c, number);
}

// Reserves the bytes of memory that the program allocates. False: refused, and nothing is reserved.
static bool admit(struct ga_allocation *c, const struct ga_vulkan_device *device,
                  const struct ga_vk_memory_info *info, enum source source) {
    c->root = NULL;
    c->entry = (struct ga_entry){.bytes = info->size, .kind = GA_MEMORY_PLAIN};
    if (!device->physical_count || info->memory_type >= device->types || source != OWN)
        return true;
    uint32_t heap = device->heap_of[info->memory_type];
    if (!ga_vulkan_device_has_heap(&device->facts[0], device->heap_flags[heap]))
        return true;
    if (!ga_allocation_begin(c) || (c->root && info->size >> 48))
        return false; // no device has that many bytes, and an entry has only 48 bits for them
    if (!c->root)
        return true;
    ga_publish_soft(c->root); // the driver may move the block to host memory
    c->entry.context = context_of(device, heap);
    c->entry.space = GA_SPACE_VULKAN;
    return acquire(c, charged_device(device, info));
}

// Writes imported memory down. In a group it counts on the first device.
static void note(const struct ga_vulkan_device *device, const struct ga_vk_memory_info *info,
                 ga_vk_memory memory) {
    bool known = device->physical_count && info->memory_type < device->types &&
                 ga_vulkan_device_has_heap(&device->facts[0],
                                           device->heap_flags[device->heap_of[info->memory_type]]);
    struct ga_root *root = known ? ga_root_get() : NULL;
    int number = root ? ga_vulkan_device_number(root, &device->facts[0]) : -1;
    if (number >= 0 && info->size && !(info->size >> 48) &&
        !ga_vulkan_device_is_exempt(root, &device->facts[0], number))
        ga_import_note(root, &(struct ga_entry){.key = key_of(device, memory).number,
                                                .space = GA_SPACE_VULKAN,
                                                .bytes = info->size,
                                                .context = context_of(device, 0),
                                                .device = (uint8_t)number});
}

ga_vk_result ga_vulkan_memory_allocate(ga_vk_device handle, const struct ga_vk_memory_info *info,
                                       const void *allocator, ga_vk_memory *memory) {
    const struct ga_vulkan_device *device = ga_vulkan_chain_device(handle);
    enum source source = source_of(info);
    struct ga_allocation c = {.full = 0};
    ga_vk_result result;
    if (!device)
        return GA_VK_OUT_OF_HOST_MEMORY;
    do {
        if (!admit(&c, device, info, source))
            return GA_VK_OUT_OF_DEVICE_MEMORY;
        result = device->next.vkAllocateMemory(handle, info, allocator, memory);
        if (result == GA_VK_SUCCESS && source == IMPORTED)
            note(device, info, *memory);
        if (!c.root)
            return result;
        if (result == GA_VK_SUCCESS) {
            c.entry.key = key_of(device, *memory).number;
            if (ga_insert(c.root, &c.entry))
                return result;
            // Without memory for its entry the block is freed again, because it could not be
            // charged.
            device->next.vkFreeMemory(handle, *memory, allocator);
            result = GA_VK_OUT_OF_HOST_MEMORY;
        }
        ga_allocation_release(&c);
    } while (ga_admit_again(c.root, &c.full, result == GA_VK_OUT_OF_DEVICE_MEMORY));
    return result;
}

// Removes the entry before the driver is called, because the driver may give the handle to another
// thread at once.
void ga_vulkan_memory_free(ga_vk_device handle, ga_vk_memory memory, const void *allocator) {
    const struct ga_vulkan_device *device = ga_vulkan_chain_device(handle);
    if (!device)
        return;
    struct ga_allocation c = {.root = memory && device->physical_count ? ga_root_get() : NULL};
    struct ga_entry import;
    bool ours = c.root && ga_remove_key(c.root, key_of(device, memory), &c.entry);
    if (c.root && !ours && ga_import_remove(c.root, key_of(device, memory), &import))
        ga_import_finish_remove(c.root, &import, true);
    device->next.vkFreeMemory(handle, memory, allocator);
    if (ours)
        ga_allocation_release(&c);
}

void ga_vulkan_memory_sweep(struct ga_root *root, const struct ga_vulkan_device *device) {
    ga_admit_sweep(root, context_of(device, 0), GA_VK_HEAPS);
    ga_import_sweep(root, context_of(device, 0));
}
