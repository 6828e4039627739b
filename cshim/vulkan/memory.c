// SPDX-License-Identifier: Apache-2.0
#include "vulkan/memory.h"

#include "core/admit.h"
#include "core/import.h"
#include "vulkan/device.h"

// Spread over all numbers.
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// A handle is what a driver or a layer makes of it: an address, or a number that each device gives
// out anew. So a block is known by its device, too, and by the part of it that has the bytes.
// Addresses that are neighbours stay so, as the table likes it.
static struct ga_key key_of(const struct ga_vulkan_device *device, uint32_t part,
                            ga_vk_memory memory) {
    return (struct ga_key){memory + device->salt[part], GA_SPACE_VULKAN};
}

void ga_vulkan_memory_start(struct ga_vulkan_device *device) {
    for (uint32_t part = 0; part < GA_VK_GROUP; part++)
        device->salt[part] = mix((uint64_t)(uintptr_t)device + part);
}

// Records are pages, so that the heap finds room in the address.
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

// How what a program asks for is known.
enum source {
    OWN,      // it is new
    IMPORTED, // it is somebody's already, and costs nothing here
    HOST,     // it is the program's own memory
};

static bool is_given(const struct ga_vk_memory_info *info, int32_t type) {
    const struct ga_vk_import *import = ga_vulkan_chain_find(info->next, type);
    return import && import->handle_type;
}

static enum source source_of(const struct ga_vk_memory_info *info) {
    return is_given(info, GA_VK_IMPORT_FD)             ? IMPORTED
           : is_given(info, GA_VK_IMPORT_HOST_POINTER) ? HOST
                                                       : OWN;
}

// What the driver is asked for, or told to free. A thread has the bytes of one device on their way,
// so where several parts of a logical one have them, those of all but the last lie in the table by
// the thread that is there: their handle is not given yet, or may be given out again before the
// call returns.
struct claim {
    struct ga_root *root; // NULL: not arbitrated, the driver alone decides
    enum source source;
    uint32_t heap;
    uint32_t part;         // whose bytes are on their way
    struct ga_entry moves; // these; no key: none are
    uint32_t parked;       // parts whose bytes lie in the table, a bit each
};

static struct ga_key key_of_parked(const struct ga_vulkan_device *device, uint32_t part) {
    return key_of(device, part, mix(~(uint64_t)ga_self.number));
}

// Without memory for it the block is nobody's from then on, and its bytes are free.
static bool park(struct claim *c, const struct ga_vulkan_device *device) {
    if (GA_LIKELY(!c->moves.key))
        return true;
    c->moves.key = key_of_parked(device, c->part).number;
    bool parked = ga_hold(c->root, &c->moves);
    if (parked)
        c->parked |= 1u << c->part;
    else
        ga_release_entry(c->root, &c->moves);
    c->moves.key = 0;
    return parked;
}

// Whatever the claim has is given back.
static void drop(struct claim *c, const struct ga_vulkan_device *device) {
    if (c->moves.key)
        ga_release_entry(c->root, &c->moves);
    for (uint32_t i = 0; c->parked >> i; i++) {
        struct ga_entry e;
        if (c->parked >> i & 1 && ga_withdraw_key(c->root, key_of_parked(device, i), &e))
            ga_release_entry(c->root, &e);
    }
}

static bool ask(struct claim *c, const struct ga_vulkan_device *device, uint32_t part,
                uint64_t bytes) {
    int number = ga_vulkan_device_number(c->root, &device->part[part]);
    if (number < 0)
        return true;
    if (!park(c, device))
        return false;
    if (!ga_admit_fast(c->root, (uint32_t)number, bytes, &c->moves.tag)) {
        if (ga_vulkan_device_lacks(c->root, &device->part[part], number))
            return true;
        if (!ga_admit_slow(c->root, (uint32_t)number, bytes, GA_MEMORY_PLAIN, &c->moves.tag))
            return false;
    }
    c->moves.bytes = bytes;
    c->moves.context = context_of(device, c->heap);
    c->moves.device = (uint8_t)number;
    c->moves.kind = GA_MEMORY_PLAIN;
    c->moves.space = GA_SPACE_VULKAN;
    c->moves.key = UINT64_MAX; // any but 0, until the handle is known
    c->part = part;
    return true;
}

// Of a heap that each device of a group has, each that is named takes the whole; else the first.
static uint32_t parts_of(const struct ga_vulkan_device *device, uint32_t heap,
                         const struct ga_vk_memory_info *info) {
    const struct ga_vk_allocate_flags *flags =
        ga_vulkan_chain_find(info->next, GA_VK_ALLOCATE_FLAGS_INFO);
    uint32_t all = (uint32_t)((1ull << device->parts) - 1);
    bool named = flags && flags->flags & GA_VK_ALLOCATE_DEVICE_MASK && flags->device_mask & all;
    uint32_t mask = named ? flags->device_mask & all : all;
    return device->heap_flags[heap] & GA_VK_HEAP_MULTI_INSTANCE ? mask : mask & -mask;
}

static bool ask_each(struct claim *c, const struct ga_vulkan_device *device, uint32_t wanted,
                     uint64_t bytes) {
    for (uint32_t i = 0; i < device->parts; i++) {
        if (wanted & 1u << i && !ask(c, device, i, bytes)) {
            drop(c, device);
            return false;
        }
    }
    return true;
}

// False: refused, and nothing was taken.
static bool begin(struct claim *c, const struct ga_vulkan_device *device,
                  const struct ga_vk_memory_info *info) {
    *c = (struct claim){.source = source_of(info)};
    if (!device->parts || info->memory_type >= device->types || c->source == HOST)
        return true;
    c->heap = device->heap_of[info->memory_type];
    if (!ga_vulkan_device_has(&device->part[0], device->heap_flags[c->heap]))
        return true;
    c->root = ga_root_get();
    if (c->source == IMPORTED)
        return true;
    if (!c->root)
        return !ga_root_denies();
    if (info->size >> 48)
        return false;      // more than there is anywhere, and than an entry can say
    ga_tell_soft(c->root); // a driver may move it to the machine's memory
    return ask_each(c, device, parts_of(device, c->heap, info), info->size);
}

// The first device of a group stands for what is imported on any.
static void note(const struct claim *c, const struct ga_vulkan_device *device, ga_vk_memory memory,
                 uint64_t bytes) {
    int number = ga_vulkan_device_number(c->root, &device->part[0]);
    if (number >= 0 && bytes && !(bytes >> 48) &&
        !ga_vulkan_device_lacks(c->root, &device->part[0], number))
        ga_import_note(c->root, &(struct ga_entry){.key = key_of(device, 0, memory).number,
                                                   .space = GA_SPACE_VULKAN,
                                                   .bytes = bytes,
                                                   .context = context_of(device, 0),
                                                   .device = (uint8_t)number});
}

// The driver has made it. False: there is no memory to remember it by.
static bool end(struct claim *c, const struct ga_vulkan_device *device,
                const struct ga_vk_memory_info *info, ga_vk_memory memory) {
    if (c->source == IMPORTED)
        note(c, device, memory, info->size);
    if (GA_LIKELY(c->moves.key)) { // else there is none of the last part
        c->moves.key = key_of(device, c->part, memory).number;
        if (!ga_hold(c->root, &c->moves))
            return false;
        c->moves.key = 0;
    }
    for (uint32_t i = 0; GA_UNLIKELY(c->parked >> i); i++) {
        struct ga_entry e;
        if (!(c->parked >> i & 1) || !ga_withdraw_key(c->root, key_of_parked(device, i), &e))
            continue;
        e.key = key_of(device, i, memory).number;
        if (!ga_hold(c->root, &e))
            ga_release_entry(c->root, &e);
    }
    return true;
}

ga_vk_result ga_vulkan_memory_allocate(ga_vk_device handle, const struct ga_vk_memory_info *info,
                                       const void *allocator, ga_vk_memory *memory) {
    const struct ga_vulkan_device *device = ga_vulkan_chain_device(handle);
    struct claim c;
    if (!device)
        return GA_VK_OUT_OF_HOST_MEMORY;
    if (!begin(&c, device, info))
        return GA_VK_OUT_OF_DEVICE_MEMORY;
    ga_vk_result result = device->next.vkAllocateMemory(handle, info, allocator, memory);
    if (!c.root || (result == GA_VK_SUCCESS && end(&c, device, info, *memory)))
        return result;
    if (result == GA_VK_SUCCESS) { // better none than what nobody can account for
        device->next.vkFreeMemory(handle, *memory, allocator);
        result = GA_VK_OUT_OF_HOST_MEMORY;
    }
    drop(&c, device);
    return result;
}

// Away from its handle before the driver is called, which may give that out again.
static void leave(struct claim *c, const struct ga_vulkan_device *device, ga_vk_memory memory) {
    for (uint32_t i = 0; i < device->parts; i++) {
        park(c, device);
        if (ga_withdraw_key(c->root, key_of(device, i, memory), &c->moves))
            c->part = i;
        else
            c->moves.key = 0;
    }
    struct ga_entry import;
    if (ga_import_take(c->root, key_of(device, 0, memory), &import))
        ga_import_ended(c->root, &import, true);
}

void ga_vulkan_memory_free(ga_vk_device handle, ga_vk_memory memory, const void *allocator) {
    const struct ga_vulkan_device *device = ga_vulkan_chain_device(handle);
    if (!device)
        return;
    struct claim c = {.root = memory && device->parts ? ga_root_get() : NULL};
    if (c.root)
        leave(&c, device, memory);
    device->next.vkFreeMemory(handle, memory, allocator);
    if (c.root)
        drop(&c, device);
}

void ga_vulkan_memory_sweep(struct ga_root *root, const struct ga_vulkan_device *device) {
    ga_admit_sweep(root, context_of(device, 0), GA_VK_HEAPS);
    ga_import_sweep(root, context_of(device, 0));
}
